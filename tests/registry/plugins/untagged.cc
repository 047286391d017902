int NoPlugin();
int NoPlugin() { return 0; }
