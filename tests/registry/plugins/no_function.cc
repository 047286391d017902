#include "tenon/registry/plugin.h"

TN_PLUGIN_NOTE(TN_PLUGIN_TAG);
