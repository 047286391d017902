// What is read of a plugin's file before it is opened.
#include "support.h"
#include "targets.h"
#include "tenon/registry/plugin_note.h"

namespace tenon::fuzz {

void FuzzPluginNote(std::string_view bytes) {
  const Result<std::string> tag =
      ReadPluginTag(std::as_bytes(std::span(bytes.data(), bytes.size())));
  if (!tag.ok()) return CheckError(tag.status());
  Read(*tag);
}

}  // namespace tenon::fuzz
