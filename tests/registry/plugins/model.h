// What the plugins of these tests register: a model that says only who made it. Not models: none of
// these computes.
#pragma once

#include <string>
#include <utility>

#include "tenon/registry/plugin.h"

namespace {

struct PlainConfig : tenon::ModelConfig {
  PlainConfig(tenon::ConfigReader& reader, tenon::Container /*container*/) {
    tenon::ReadIdentity(reader, *this);
    layers = reader.RequireInt("plain_layers");  // a key that no other family knows
  }
};

class PlainModel final : public tenon::Model {
 public:
  using Config = PlainConfig;
  PlainModel(const tenon::Scope& scope, const PlainConfig& /*config*/) : Model(scope) {}
  tenon::Value Forward(tenon::Forward& /*pass*/) const override { return {}; }
  static tenon::NameTable Names(const PlainConfig& /*config*/, tenon::Container /*container*/) {
    return {};
  }
};

[[maybe_unused]] void AddPlain(tenon::Registrar& registrar, std::string architecture,
                               std::string type) {
  registrar.Model<PlainModel>(std::move(architecture), tenon::ModelKind::kCausalLm,
                              {.model_type = std::move(type)});
}

}  // namespace
