// Plugins as files: what is opened and what it then serves, and that each way to fail says its own
// cause. The plugins are in plugins/; tests/contracts builds one against the installed package.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "support/words.h"
#include "tenon/base/file.h"
#include "tenon/registry/plugin_loader.h"
#include "tenon/registry/resolution.h"
#include "tenon/zoo/zoo.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;
using test::ExpectWords;

std::string Plugin(const std::string& name) {
  return fs::canonical(std::string(TN_TEST_PLUGIN_DIR)) / (name + ".so");
}

// An empty folder of this test's own.
class Folder {
 public:
  Folder() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    path_ = fs::path(testing::TempDir()) / (std::string("plugins_") + info->name());
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const fs::path& path() const { return path_; }
  std::string Copy(const std::string& plugin, const std::string& name) const {
    fs::create_directories((path_ / name).parent_path());
    fs::copy_file(Plugin(plugin), path_ / name);
    return fs::canonical(path_ / name);
  }

 private:
  fs::path path_;
};

Status Open(Registry& registry, const std::vector<std::string>& paths) {
  return OpenPlugins(paths, registry);
}

std::string ProviderOf(Registry& registry, std::string_view architecture) {
  const auto found = registry.Find(architecture);
  return found.ok() ? found->provider : "error: " + found.message();
}

void ExpectRefusal(const std::string& plugin, StatusCode code,
                   std::initializer_list<std::string_view> words) {
  const auto registry = MakeRegistry();
  const Status status = Open(*registry, {plugin});
  ASSERT_FALSE(status.ok()) << plugin;
  EXPECT_EQ(status.code(), code) << status.message();
  ExpectWords(status.message(), words);
}

// --- what is opened

TEST(Plugins, AFileServesItsModels) {
  const auto registry = MakeRegistry();
  const Status status = Open(*registry, {Plugin("good")});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(ProviderOf(*registry, "PlainForCausalLM"), Plugin("good"));
  EXPECT_EQ(ProviderOf(*registry, "MixtralForCausalLM"), "mixtral");
}

TEST(Plugins, ItsModelTypeAndConfigReaderAreItsOwn) {
  const auto registry = MakeRegistry();
  ASSERT_TRUE(Open(*registry, {Plugin("good")}).ok());
  const auto resolution = Resolve(
      {.architectures = {"PlainForCausalLM"}, .model_type = "plain", .source = "test"}, *registry);
  ASSERT_TRUE(resolution.ok()) << resolution.message();
  EXPECT_EQ(resolution->provider, Plugin("good"));
  const auto json = ParseJson(R"({"model_type": "plain", "plain_layers": 7})");
  ConfigReader reader(*json);
  const auto config = resolution->entry->read_config(reader, Container::kHuggingFace);
  EXPECT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_EQ(config->layers.value, 7);
}

TEST(Plugins, OverridesABuiltinBeforeAndAfterItWasOpened) {
  for (const bool opened_before : {false, true}) {
    const auto registry = MakeRegistry();
    if (opened_before) {
      EXPECT_EQ(ProviderOf(*registry, "LlamaForCausalLM"), "llama");
    }
    ASSERT_TRUE(Open(*registry, {Plugin("good")}).ok());
    EXPECT_EQ(ProviderOf(*registry, "LlamaForCausalLM"), Plugin("good"));
    // Opens the built-in if it was not: it does not take the slot back.
    const auto metadata = GgufMetadata();
    EXPECT_EQ(*registry->ArchitectureOfGguf("llama", metadata), "LlamaForCausalLM");
    EXPECT_EQ(ProviderOf(*registry, "LlamaForCausalLM"), Plugin("good"));
    ASSERT_EQ(registry->notes().size(), 1u);
    EXPECT_EQ(registry->notes()[0],
              "LlamaForCausalLM: kept " + Plugin("good") + ", displaced llama");
  }
}

TEST(Plugins, AFolderMeansAllThatAreDirectlyInIt) {
  const Folder folder;
  const std::string b = folder.Copy("good", "b.so");
  const std::string a = folder.Copy("good", "a.so");
  folder.Copy("untagged", "below/c.so");
  folder.Copy("untagged", "README.txt");
  const auto registry = MakeRegistry();
  const Status status = Open(*registry, {folder.path()});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(ProviderOf(*registry, "PlainForCausalLM"), b) << "by name, and the last wins";
  registry->Rebuild(std::vector<std::string>{a});
  EXPECT_EQ(ProviderOf(*registry, "PlainForCausalLM"), a);
}

TEST(Plugins, TwoOfOneNameInTwoFolders) {
  const Folder folder;
  const std::string one = folder.Copy("good", "one/plain.so");
  const std::string two = folder.Copy("good", "two/plain.so");
  const auto registry = MakeRegistry();
  ASSERT_TRUE(Open(*registry, {two, one}).ok());
  EXPECT_EQ(ProviderOf(*registry, "PlainForCausalLM"), one);
  ASSERT_TRUE(Open(*registry, {two, one}).ok());
  EXPECT_EQ(ProviderOf(*registry, "PlainForCausalLM"), one);
}

TEST(Plugins, TheSameTwiceIsHarmless) {
  const Folder folder;
  const std::string real = folder.Copy("good", "real.so");
  fs::create_symlink(real, folder.path() / "link.so");
  fs::create_directory(folder.path() / "sub");
  const auto registry = MakeRegistry();
  const Status status =
      Open(*registry, {real, real, folder.path() / "link.so", folder.path() / "sub/../real.so"});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(ProviderOf(*registry, "PlainForCausalLM"), real);
  ASSERT_EQ(registry->notes().size(), 0u);
}

// --- what is not

TEST(Plugins, AnAbsentPath) {
  ExpectRefusal("/nowhere/at/all.so", StatusCode::kNotFound,
                {"'/nowhere/at/all.so'", "no such file or folder", "fix: "});
}

TEST(Plugins, AnEmptyFolder) {
  const Folder folder;
  ExpectRefusal(folder.path(), StatusCode::kUsage,
                {folder.path().string(), "no plugin (*.so)", "fix: "});
}

TEST(Plugins, NotElf) {
  const Folder folder;
  const std::string path = folder.path() / "text.so";
  ASSERT_TRUE(WriteFile(path, "#!/bin/sh\n").ok());
  ExpectRefusal(path, StatusCode::kUsage, {path, "no ELF shared library", "fix: "});
  ASSERT_TRUE(WriteFile(path, "").ok());
  ExpectRefusal(path, StatusCode::kUsage, {path, "fix: "});
}

TEST(Plugins, ALibraryThatIsNoPlugin) {
  ExpectRefusal(Plugin("untagged"), StatusCode::kUsage,
                {Plugin("untagged"), "no plugin", "TN_PLUGIN", "fix: "});
  ExpectRefusal(Plugin("no_function"), StatusCode::kRefused,
                {Plugin("no_function"), "tenon_register_plugin", "fix: "});
}

TEST(Plugins, AWrongTagIsNeverRun) {
  const Folder folder;
  const std::string witness = folder.path() / "witness";
  ASSERT_EQ(::setenv("TENON_TEST_WITNESS", witness.c_str(), 1), 0);
  ExpectRefusal(Plugin("wrong_tag"), StatusCode::kRefused,
                {Plugin("wrong_tag"), "ABI tag 'tenon-9.7 x86-64 itanium-1 libstdc++-cxx11'",
                 "needs '" + PluginTag() + "'", "fix: "});
  EXPECT_FALSE(FileExists(witness));
  // The witness does see code of it.
  void* library = ::dlopen(Plugin("wrong_tag").c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << ::dlerror();
  EXPECT_TRUE(FileExists(witness));
  ::unsetenv("TENON_TEST_WITNESS");
}

TEST(Plugins, ADependencyThatIsAbsentIsNamed) {
  ExpectRefusal(Plugin("dependent"), StatusCode::kRefused,
                {Plugin("dependent"), "needs the library 'libtest_dependency.so'",
                 "cannot open shared object file", "fix: "});
}

TEST(Plugins, AnUndefinedSymbolInTheLoadersWords) {
  ExpectRefusal(Plugin("undefined"), StatusCode::kRefused,
                {Plugin("undefined"), "undefined symbol: _ZN5tenon13NobodyHasThis",
                 "(tenon::NobodyHasThis(tenon::Registrar&))", "fix: "});
}

TEST(Plugins, ARegistrationThatFails) {
  ExpectRefusal(Plugin("throws"), StatusCode::kRefused,
                {Plugin("throws"), "threw", "no table for this vocabulary"});
  ExpectRefusal(Plugin("throws_number"), StatusCode::kRefused,
                {Plugin("throws_number"), "threw", "no std::exception"});
  ExpectRefusal(Plugin("fails"), StatusCode::kRefused,
                {Plugin("fails"), "failed to open", "the licence of the weights is not there"});
  ExpectRefusal(Plugin("nothing"), StatusCode::kRefused, {Plugin("nothing"), "registers nothing"});
}

TEST(Plugins, OneThatFailsRegistersNothingAndTakesNothingWithIt) {
  const auto registry = MakeRegistry();
  const Status status =
      Open(*registry, {Plugin("throws"), Plugin("good"), "/nowhere.so", Plugin("undefined")});
  ASSERT_FALSE(status.ok());
  ExpectWords(status.message(), {"3 problems", "no table", "/nowhere.so", "undefined symbol"});
  EXPECT_FALSE(registry->Find("HalfForCausalLM").ok());
  EXPECT_TRUE(registry->Find("PlainForCausalLM").ok());
}

TEST(Plugins, WhatItRegistersLaterIsAnError) {
  const auto registry = MakeRegistry();
  ASSERT_TRUE(Open(*registry, {Plugin("late")}).ok());
  ASSERT_TRUE(registry->Find("EarlyForCausalLM").ok());
  void* library = ::dlopen(Plugin("late").c_str(), RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr);
  reinterpret_cast<void (*)()>(::dlsym(library, "RegisterLate"))();
  EXPECT_FALSE(registry->Find("EarlyForCausalLM").ok());
  EXPECT_FALSE(registry->Find("LateForCausalLM").ok());
  const Status again = Open(*registry, {Plugin("late")});
  ASSERT_FALSE(again.ok());
  ExpectWords(again.message(), {Plugin("late"), "LateForCausalLM", "after"});
}

}  // namespace
}  // namespace tenon
