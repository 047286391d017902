// Built for another version: its initialiser leaves a file, by which a test sees whether code of it
// was run.
#include <cstdio>
#include <cstdlib>

#include "tenon/registry/plugin.h"

namespace {

const bool g_ran = [] {
  if (const char* path = std::getenv("TENON_TEST_WITNESS")) std::fclose(std::fopen(path, "w"));
  return true;
}();

}  // namespace

TN_PLUGIN_NOTE("tenon-9.7 x86-64 itanium-1 libstdc++-cxx11");
extern "C" void tenon_register_plugin(tenon::Registrar& /*registrar*/, tenon::Status& /*status*/) {}
