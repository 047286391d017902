int Needed();
int Needed() { return 1; }
