// One JSON value against what a key allows: conversion, ranges, and how messages show both.
// Internal to ConfigReader. Pure functions; thread-safe.
#pragma once

#include <string>

#include "tenon/base/json.h"
#include "tenon/config/config_reader.h"

namespace tenon {

// A value as messages show it: short, and never cut inside a character.
std::string ValueText(const Json& value);
// "an integer from 1 to 16".
std::string Allowed(IntRange range);
std::string Allowed(RealRange range);
bool Contains(RealRange range, double value);
// What stands for an unreadable value: inside the range, and harmless as a size.
int64_t PlaceholderOf(IntRange range);
double PlaceholderOf(RealRange range);

// False when the value is of a wrong kind or out of range. `note` tells of a conversion.
bool ToInt(const Json& value, IntRange range, int64_t& out, std::string& note);
bool ToReal(const Json& value, RealRange range, double& out);
bool ToBool(const Json& value, bool& out, std::string& note);

}  // namespace tenon
