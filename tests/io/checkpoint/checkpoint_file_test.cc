// One checkpoint file: round trip, atomic replacement, and what happens when the output cannot be
// written.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <span>
#include <sstream>

#include "io/checkpoint/array_source.h"
#include "io/checkpoint/atomic_file.h"
#include "io/checkpoint/byte_source.h"
#include "io/checkpoint/checkpoint_directory.h"
#include "io/checkpoint/checkpoint_format.h"
#include "io/checkpoint/late_arrays.h"
#include "tests/io/checkpoint/checkpoint_fixture.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

using namespace checkpoint_fixture;
using io::CannotCreateError;

TEST(CheckpointFile, RoundTripKeepsEveryField) {
  const test_support::TemporaryDirectory folder;
  const io::Checkpoint saved = sample_checkpoint();
  io::save_checkpoint(saved, folder / "a.ckpt");
  expect_equal(io::load_checkpoint(folder / "a.ckpt"), saved);
  expect_equal(io::parse_checkpoint(io::read_file(folder / "a.ckpt"), "memory"), saved);
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a.ckpt"});
}

TEST(CheckpointFile, RoundTripOfAnEmptyCheckpoint) {
  const test_support::TemporaryDirectory folder;
  io::save_checkpoint({}, folder / "a.ckpt");
  expect_equal(io::load_checkpoint(folder / "a.ckpt"), {});
}

TEST(CheckpointFile, FollowsTheDocumentedLayout) {
  const test_support::TemporaryDirectory folder;
  io::save_checkpoint(sample_checkpoint(), folder / "a.ckpt");
  const Bytes file = io::read_file(folder / "a.ckpt");
  EXPECT_EQ(assemble(header_of(file), tensors_of(file)), file);
  Bytes tensors;
  for (const io::NamedArray& array : sample_checkpoint().arrays)
    tensors.insert(tensors.end(), array.data.begin(), array.data.end());
  EXPECT_EQ(tensors_of(file), tensors);
}

// Files that earlier builds wrote, one of each version.
TEST(CheckpointFile, FilesOfEarlierVersionsLoadAndAreChecked) {
  io::Checkpoint expected = sample_checkpoint();
  for (const int version : {1, 2, 3}) {
    if (version == 2) expected.vocabulary = "ab\n";
    if (version == 3) {
      expected.run_id = "20260101-000000-0123456789abcdef";
      expected.definition = "model = 1";
      expected.data_digest = "0123";
    }
    Bytes file =
        io::read_file(test_support::source_directory() + "/tests/io/checkpoint/data/version_" +
                      std::to_string(version) + ".ckpt");
    ASSERT_EQ(get<std::uint32_t>(file, 8), static_cast<std::uint32_t>(version));
    expect_equal(io::parse_checkpoint(file, "memory"), expected);
    EXPECT_NO_THROW(io::open_checkpoint_arrays(io::memory_bytes(file, "memory"))->finish());
    for (std::size_t at = 0; at < file.size(); ++at) {
      file[at] ^= std::byte{0x80};
      EXPECT_THROW(io::parse_checkpoint(file, "memory"), io::DataError) << "byte " << at;
      EXPECT_THROW(io::open_checkpoint_arrays(io::memory_bytes(file, "memory"))->finish(),
                   io::DataError)
          << "byte " << at;
      file[at] ^= std::byte{0x80};
    }
  }
}

TEST(CheckpointFile, TheExampleInTheDocumentationIsWhatIsWritten) {
  std::istringstream page(
      test_support::read_text(test_support::source_directory() + "/docs/checkpoint-format.md"));
  Bytes example;
  for (std::string line; std::getline(page, line);) {
    if (line.size() < 10 || line.substr(8, 2) != ": ") continue;  // "00000010: 0000 0000 ..."
    std::string digits = line.substr(10);
    std::erase(digits, ' ');
    for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
      example.push_back(static_cast<std::byte>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  io::Checkpoint c;
  c.global_step = 3;
  c.model = "m";
  c.dataset = "d";
  const float values[] = {1, -2};
  const auto bytes = std::as_bytes(std::span(values));
  c.arrays.push_back({"w",
                      io::Section::kParameter,
                      base::DType::kF32,
                      {2},
                      "cpu:0",
                      {bytes.begin(), bytes.end()}});
  expect_equal(io::parse_checkpoint(example, "the example"), c);
  const test_support::TemporaryDirectory folder;
  io::save_checkpoint(c, folder / "a.ckpt");
  EXPECT_EQ(io::read_file(folder / "a.ckpt"), example);
}

// Arrays that are filled in as they are written, larger than what is written at once.
TEST(CheckpointFile, ArraysMayBeCompletedWhileTheyAreWritten) {
  const test_support::TemporaryDirectory folder;
  io::Checkpoint expected = sample_checkpoint();
  io::NamedArray large;
  large.name = "large";
  large.type = base::DType::kU8;
  large.shape = {9'000'001};
  for (std::size_t i = 0; i < 9'000'001; ++i) large.data.push_back(std::byte(i * i >> 3));
  expected.arrays.push_back(large);
  io::save_checkpoint(expected, folder / "a.ckpt");
  expect_equal(io::load_checkpoint(folder / "a.ckpt"), expected);

  io::Checkpoint late = expected;
  for (io::NamedArray& array : late.arrays) std::ranges::fill(array.data, std::byte{7});
  io::save_checkpoint(late, folder / "b.ckpt",
                      [&](std::size_t i) { late.arrays[i].data = expected.arrays[i].data; });
  EXPECT_EQ(io::read_file(folder / "a.ckpt"), io::read_file(folder / "b.ckpt"));

  EXPECT_THROW(
      io::save_checkpoint(late, folder / "c.ckpt", [](std::size_t) { throw io::Error("no"); }),
      io::Error);
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"a.ckpt", "b.ckpt"}));
}

// docs/checkpoint-format.md has this table; files of earlier builds hold these codes.
TEST(CheckpointFile, CodesOfElementTypesDoNotChange) {
  using base::DType;
  const std::pair<DType, int> codes[] = {{DType::kF32, 1}, {DType::kF64, 2}, {DType::kI64, 3},
                                         {DType::kU8, 4},  {DType::kI32, 5}, {DType::kF16, 6},
                                         {DType::kBF16, 7}};
  for (const auto& [type, code] : codes) {
    EXPECT_EQ(io::format::type_code(type), code) << to_string(type);
    EXPECT_EQ(io::format::type_of_code(static_cast<std::uint8_t>(code), "x"), type);
  }
  EXPECT_THROW(io::format::type_of_code(0, "x"), io::DataError);
  EXPECT_THROW(io::format::type_of_code(8, "x"), io::DataError);
}

TEST(CheckpointFile, FactsAboutTheRunAreKept) {
  const test_support::TemporaryDirectory folder;
  io::Checkpoint saved = sample_checkpoint();
  saved.run_id = "20260102-030405-abcdef01";
  saved.definition = "[[layers]]\ntype = \"dense\"\n";
  saved.data_digest = "0123456789abcdef";
  saved.samples = "{\"schema\":1}";
  saved.tokenizer = "{\"model\":{}}";
  io::save_checkpoint(saved, folder / "a.ckpt");
  expect_equal(io::load_checkpoint(folder / "a.ckpt"), saved);
  EXPECT_EQ(io::load_description(folder / "a.ckpt").run_id, saved.run_id);
}

TEST(CheckpointFile, AVocabularyHasDistinctBytesAndIsKept) {
  const test_support::TemporaryDirectory folder;
  io::Checkpoint saved = sample_checkpoint();
  saved.vocabulary = std::string("\n a\0z\xc3\xff", 7);
  io::save_checkpoint(saved, folder / "a.ckpt");
  expect_equal(io::load_checkpoint(folder / "a.ckpt"), saved);
  saved.vocabulary = "abca";
  EXPECT_THROW(io::save_checkpoint(saved, folder / "b.ckpt"), io::DataError);
  saved.vocabulary = std::string(257, 'a');
  EXPECT_THROW(io::save_checkpoint(saved, folder / "b.ckpt"), io::DataError);
}

TEST(CheckpointFile, SameContentSameBytes) {
  const test_support::TemporaryDirectory folder;
  io::save_checkpoint(sample_checkpoint(), folder / "a.ckpt");
  io::save_checkpoint(sample_checkpoint(), folder / "b.ckpt");
  EXPECT_EQ(io::read_file(folder / "a.ckpt"), io::read_file(folder / "b.ckpt"));
}

TEST(CheckpointFile, FindGoesBySectionAndName) {
  const io::Checkpoint c = sample_checkpoint();
  EXPECT_EQ(c.find(io::Section::kOptimizer, "conv1.weight"), &c.arrays[3]);
  EXPECT_EQ(c.find(io::Section::kParameter, "conv1.weight"), &c.arrays[0]);
  EXPECT_EQ(c.find(io::Section::kParameter, "bn1.running_mean"), nullptr);
}

TEST(CheckpointFile, ModeFollowsTheUmask) {
  const test_support::TemporaryDirectory folder;
  const mode_t before = umask(027);
  io::save_checkpoint(sample_checkpoint(), folder / "a.ckpt");
  umask(before);
  struct stat status {};
  ASSERT_EQ(stat((folder / "a.ckpt").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

TEST(CheckpointFile, RefusesToSaveWhatItWouldNotLoad) {
  const test_support::TemporaryDirectory folder;
  io::Checkpoint twice = sample_checkpoint();
  twice.arrays.push_back(twice.arrays.front());
  io::Checkpoint short_data = sample_checkpoint();
  short_data.arrays.front().data.pop_back();
  io::Checkpoint binary_name = sample_checkpoint();
  binary_name.arrays.front().name = "\xff";
  for (const io::Checkpoint& c : {twice, short_data, binary_name})
    EXPECT_THROW(io::save_checkpoint(c, folder / "a.ckpt"), io::DataError);
  EXPECT_TRUE(names_in(folder.path()).empty());
}

// The message of the CannotCreateError that saving to `path` must cause.
std::string refusal(const std::string& path) {
  return test_support::error_of<CannotCreateError>(
      [&] { io::save_checkpoint(sample_checkpoint(), path); });
}

TEST(CheckpointFile, DoesNotReplaceADeviceOrAPipe) {
  const test_support::TemporaryDirectory folder;
  std::filesystem::create_symlink("/dev/null", folder / "null");
  EXPECT_VALUES(refusal(folder / "null"), (folder / "null") + " device");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_VALUES(refusal(folder / "pipe"), (folder / "pipe") + " pipe");
  EXPECT_EQ(names_in(folder.path()).size(), 2u);
}

TEST(CheckpointFile, MissingFolderFolderInPlaceAndEmptyName) {
  const test_support::TemporaryDirectory folder;
  EXPECT_EQ(refusal(folder / "none/a.ckpt"),
            "cannot create " + (folder / "none/a.ckpt") + ": No such file or directory");
  std::filesystem::create_directory(folder / "a.ckpt");
  EXPECT_VALUES(refusal(folder / "a.ckpt"), (folder / "a.ckpt") + " folder");
  refusal((folder.path() / "").string());
  refusal("");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a.ckpt"});
}

// Runs `body` in a child process without the rights of root; true when it returned true.
bool as_plain_user(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(3);
    bool good = false;
    try {
      good = body();
    } catch (const std::exception&) {
    }
    _exit(good ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(CheckpointFile, FolderWithoutWritePermission) {
  const test_support::TemporaryDirectory folder;
  io::save_checkpoint(sample_checkpoint(1), folder / "a.ckpt");
  chmod(folder.path().c_str(), 0555);
  const bool refused = as_plain_user([&] {
    int refusals = 0;
    try {
      io::save_checkpoint(sample_checkpoint(2), folder / "a.ckpt");
    } catch (const CannotCreateError&) {
      ++refusals;
    }
    try {
      io::ensure_writable_directory(folder.path().string());
    } catch (const CannotCreateError&) {
      ++refusals;
    }
    try {
      io::ensure_writable_directory(folder / "new");
    } catch (const CannotCreateError&) {
      ++refusals;
    }
    return refusals == 3;
  });
  chmod(folder.path().c_str(), 0755);
  EXPECT_TRUE(refused);
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a.ckpt"});
  expect_equal(io::load_checkpoint(folder / "a.ckpt"), sample_checkpoint(1));
}

// Files may not grow past `bytes` while this lives: what a full disk or a quota does.
class SizeLimit {
 public:
  explicit SizeLimit(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~SizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, SIG_DFL);
  }

 private:
  rlimit before_{};
};

TEST(CheckpointFile, NoSpaceIsFoundBeforeAnythingIsWritten) {
  const test_support::TemporaryDirectory folder;
  io::save_checkpoint(sample_checkpoint(1), folder / "a.ckpt");
  {
    const SizeLimit limit(512);
    EXPECT_CONTAINS(refusal(folder / "a.ckpt"), "it takes ");
  }
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a.ckpt"});
  expect_equal(io::load_checkpoint(folder / "a.ckpt"), sample_checkpoint(1));
}

TEST(CheckpointFile, NoSpaceWhileWriting) {
  const test_support::TemporaryDirectory folder;
  test_support::write_text(folder / "a", "old");
  {
    const SizeLimit limit(512);
    io::AtomicFile file(folder / "a", 0);  // nothing reserved, as on a file system that cannot
    EXPECT_THROW(file.write(Bytes(1024)), CannotCreateError);
  }
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a"});
  EXPECT_EQ(test_support::read_text(folder / "a"), "old");
}

TEST(AtomicFile, AppearsOnlyAtCommit) {
  const test_support::TemporaryDirectory folder;
  {
    io::AtomicFile file(folder / "a", 100);
    file.write(Bytes(10));
    EXPECT_FALSE(std::filesystem::exists(folder / "a"));
    file.commit();
    EXPECT_EQ(std::filesystem::file_size(folder / "a"), 10u);  // not the 100 reserved
  }
  { io::AtomicFile given_up(folder / "b", 100); }
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a"});
}

TEST(AtomicFile, ReplacesALinkInsteadOfFollowingIt) {
  const test_support::TemporaryDirectory folder;
  test_support::write_text(folder / "other", "precious");
  std::filesystem::create_symlink("other", folder / "a");
  io::write_file_atomically(folder / "a", "new");
  EXPECT_EQ(test_support::read_text(folder / "other"), "precious");
  EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(folder / "a")));
}

TEST(AtomicFile, CleaningTakesOnlyAbandonedTemporaries) {
  const test_support::TemporaryDirectory folder;
  test_support::write_text(folder / ".step-00000001.ckpt.tmp-99-0", "left by a killed process");
  test_support::write_text(folder / ".notes.tmp-old", "the user's");
  test_support::write_text(folder / "x.tmp-1-2", "the user's");
  io::AtomicFile alive(folder / "a", 10);
  io::remove_abandoned_temporaries(folder.path().string());
  EXPECT_EQ(names_in(folder.path()).size(), 3u);
  EXPECT_FALSE(std::filesystem::exists(folder / ".step-00000001.ckpt.tmp-99-0"));
  alive.commit();
  EXPECT_TRUE(std::filesystem::exists(folder / "a"));
  io::remove_abandoned_temporaries("/no/such/folder");
}

}  // namespace
