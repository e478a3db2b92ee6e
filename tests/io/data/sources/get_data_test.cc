// The script that fetches data sets, on mirrors in the file system.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/support/test_support.h"

namespace {

using test_support::CommandResult;
namespace fs = std::filesystem;

class GetData : public ::testing::Test {
 protected:
  CommandResult get(std::vector<std::string> arguments,
                    const std::map<std::string, std::string>& environment = {}) {
    arguments.insert(arguments.begin(), {"/bin/bash", test_support::source_directory() +
                                                          "/tools/scripts/get_data.sh"});
    return test_support::run_command(arguments, environment);
  }
  CommandResult get_text(const std::string& mirror) {
    return get({"tinyshakespeare", "--mirror", mirror, "--dir", target()});
  }
  std::string target() const { return folder_ / "target"; }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    if (fs::exists(target())) {
      for (const auto& entry : fs::directory_iterator(target()))
        names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  test_support::TemporaryDirectory folder_;
};

class GetRealData : public GetData {
 protected:
  void SetUp() override {
    if (test_support::data_directory("tinyshakespeare").empty()) GTEST_SKIP() << "no data sets";
    mirror_ = "file://" + test_support::data_directory("");
  }
  std::string mirror_;
};

bool said(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(GetRealData, FetchesOnceThenHasNothingToDo) {
  const CommandResult first = get({"mnist", "--mirror", mirror_, "--dir", target()});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_TRUE(said(first.out, "fetching " + mirror_)) << first.out;
  EXPECT_EQ(files(),
            (std::vector<std::string>{"t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz",
                                      "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"}));
  const CommandResult second = get({"mnist", "--mirror", "file:///nowhere", "--dir", target()});
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_FALSE(said(second.out, "fetching")) << second.out;
  EXPECT_TRUE(said(second.out, "mnist is complete")) << second.out;
}

TEST_F(GetRealData, ReplacesADamagedFileOnly) {
  ASSERT_EQ(get({"mnist", "--mirror", mirror_, "--dir", target()}).exit_code, 0);
  test_support::write_text(target() + "/t10k-labels-idx1-ubyte.gz", "half");
  const CommandResult again = get({"mnist", "--mirror", mirror_ + "/", "--dir", target()});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_TRUE(said(again.out, "t10k-labels")) << again.out;
  EXPECT_FALSE(said(again.out, "t10k-images")) << again.out;
  EXPECT_EQ(fs::file_size(target() + "/t10k-labels-idx1-ubyte.gz"), 4542u);
}

TEST_F(GetRealData, ACorruptMirrorIsRefusedAndLeavesNothing) {
  fs::create_directories(folder_ / "mirror/tinyshakespeare");
  std::string text =
      test_support::read_text(test_support::data_directory("tinyshakespeare") + "/input.txt");
  text[1000] ^= 1;
  test_support::write_text(folder_ / "mirror/tinyshakespeare/input.txt", text);
  const CommandResult result = get_text("file://" + (folder_ / "mirror"));
  EXPECT_EQ(result.exit_code, 65);
  EXPECT_TRUE(said(result.err, "wrong SHA-256 of input.txt")) << result.err;
  EXPECT_TRUE(said(result.err, "expected 86c4e6aa")) << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_TRUE(files().empty());
}

TEST_F(GetData, ADamagedArchiveOfTheMirrorIsRefused) {
  fs::create_directories(folder_ / "mirror/cifar10");
  test_support::write_text(folder_ / "mirror/cifar10/data_batch_1.bin.xz", "not xz");
  const CommandResult result =
      get({"cifar10", "--mirror", "file://" + (folder_ / "mirror"), "--dir", target()});
  EXPECT_EQ(result.exit_code, 65);
  EXPECT_TRUE(said(result.err, "data_batch_1.bin.xz")) << result.err;
  EXPECT_TRUE(files().empty());
}

TEST_F(GetData, AnUnreachableMirrorIsNamed) {
  for (const std::string mirror : {"file:///nowhere", "http://127.0.0.1:9"}) {
    const CommandResult result = get_text(mirror);
    EXPECT_EQ(result.exit_code, 69) << result.err;
    EXPECT_TRUE(said(result.err, "cannot fetch " + mirror + "/tinyshakespeare/input.txt"))
        << result.err;
    EXPECT_TRUE(files().empty());
  }
}

TEST_F(GetData, MissingDownloadersAreNamed) {
  fs::create_directories(folder_ / "bin");
  for (const std::string tool :
       {"basename", "cut", "dirname", "mkdir", "mktemp", "rm", "sha256sum"}) {
    const fs::path path = fs::exists("/usr/bin/" + tool) ? "/usr/bin/" + tool : "/bin/" + tool;
    fs::create_symlink(path, folder_ / ("bin/" + tool));
  }
  const CommandResult result =
      get({"tinyshakespeare", "--mirror", "http://127.0.0.1:9", "--dir", target()},
          {{"PATH", folder_ / "bin"}});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_TRUE(said(result.err, "curl and wget are missing")) << result.err;
}

TEST_F(GetData, AFolderThatCannotBeMadeIsNamed) {
  test_support::write_text(target(), "a file in the way");
  const CommandResult result = get({"mnist", "--mirror", "file:///nowhere", "--dir", target()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(said(result.err, "cannot create the folder")) << result.err;
}

TEST_F(GetData, WrongUsageIsExplained) {
  const CommandResult unknown = get({"minst"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_TRUE(said(unknown.err, "known: mnist fashion-mnist cifar10 tinyshakespeare all"))
      << unknown.err;
  EXPECT_EQ(get({}).exit_code, 2);
  EXPECT_EQ(get({"mnist", "--mirror"}).exit_code, 2);
  EXPECT_EQ(get({"mnist", "cifar10"}).exit_code, 2);
  EXPECT_EQ(get({"mnist", "--miror", "x"}).exit_code, 2);
  const CommandResult help = get({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_TRUE(said(help.out, "--mirror URL")) << help.out;
}

}  // namespace
