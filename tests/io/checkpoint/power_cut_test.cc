// What a power cut can leave of a save folder. The calls of a sequence of saves are recorded; then
// the machine "loses power" at any of them, with any part of what was not synced lost or torn, and
// the folder must hold the last checkpoint that was reported as saved, or a later one.
//
// This program defines the calls that change files, so that the ones of the code under test arrive
// here first. Names in a folder that were not synced may survive in any combination, as POSIX
// allows; real file systems keep them in order.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint_directory.h"
#include "io/checkpoint/checkpoint_names.h"
#include "tests/io/checkpoint/checkpoint_fixture.h"
#include "tests/support/test_support.h"

namespace {

struct Call {
  enum class Kind {
    kCreate,
    kWrite,
    kTruncate,
    kSync,
    kRename,
    kUnlink,
    kSyncFolder,
    kSaved  // save_to_directory() has returned
  } kind;
  int file = 0;  // number of the file, in the order of creation
  std::string name = {}, to = {};
  std::uint64_t offset = 0;  // or the new length
  std::string bytes = {};
  std::int64_t step = 0;
};

// What the saves did, while `folder` is set.
struct Recorder {
  std::string folder;
  std::vector<Call> calls;
  std::map<int, int> file_of;             // descriptor to number
  std::map<std::string, int> file_named;  // current names
  std::map<int, bool> folders;            // descriptors of the folder
  int files = 0;
};
Recorder recorder;

// The name within the recorded folder.
std::optional<std::string> recorded_name(const char* path) {
  const std::string text = path;
  if (recorder.folder.empty() || !text.starts_with(recorder.folder + "/")) return std::nullopt;
  return text.substr(recorder.folder.size() + 1);
}

void record(Call call) { recorder.calls.push_back(std::move(call)); }

template <typename F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(more, int) : 0;
  va_end(more);
  static auto* const real = next<int(const char*, int, ...)>("open");
  const int fd = real(path, flags, mode);
  if (fd < 0 || recorder.folder.empty()) return fd;
  if (const auto name = recorded_name(path)) {
    if ((flags & O_CREAT) != 0 && !recorder.file_named.contains(*name)) {
      recorder.file_named[*name] = recorder.files;
      record({.kind = Call::Kind::kCreate, .file = recorder.files++, .name = *name});
    }
    if (recorder.file_named.contains(*name)) recorder.file_of[fd] = recorder.file_named[*name];
  } else if (path == recorder.folder) {
    recorder.folders[fd] = true;
  }
  return fd;
}

int close(int fd) {
  static auto* const real = next<int(int)>("close");
  recorder.file_of.erase(fd);
  recorder.folders.erase(fd);
  return real(fd);
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  static auto* const real = next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  const ssize_t done = real(fd, data, size, offset);
  if (done > 0 && recorder.file_of.contains(fd))
    record({.kind = Call::Kind::kWrite,
            .file = recorder.file_of[fd],
            .offset = static_cast<std::uint64_t>(offset),
            .bytes = std::string(static_cast<const char*>(data), static_cast<size_t>(done))});
  return done;
}

ssize_t write(int fd, const void* data, size_t size) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  if (recorder.file_of.contains(fd)) ADD_FAILURE() << "write() to a file is not recorded";
  return real(fd, data, size);
}

int ftruncate(int fd, off_t length) noexcept {
  static auto* const real = next<int(int, off_t)>("ftruncate");
  if (recorder.file_of.contains(fd))
    record({.kind = Call::Kind::kTruncate,
            .file = recorder.file_of[fd],
            .offset = static_cast<std::uint64_t>(length)});
  return real(fd, length);
}

int posix_fallocate(int fd, off_t offset, off_t length) {
  static auto* const real = next<int(int, off_t, off_t)>("posix_fallocate");
  if (recorder.file_of.contains(fd))
    record({.kind = Call::Kind::kTruncate,
            .file = recorder.file_of[fd],
            .offset = static_cast<std::uint64_t>(offset + length)});
  return real(fd, offset, length);
}

int fsync(int fd) {
  static auto* const real = next<int(int)>("fsync");
  if (recorder.file_of.contains(fd))
    record({.kind = Call::Kind::kSync, .file = recorder.file_of[fd]});
  if (recorder.folders.contains(fd)) record({.kind = Call::Kind::kSyncFolder});
  return real(fd);
}

int rename(const char* from, const char* to) noexcept {
  static auto* const real = next<int(const char*, const char*)>("rename");
  const auto old_name = recorded_name(from), new_name = recorded_name(to);
  if (old_name && new_name) {
    const int file = recorder.file_named.at(*old_name);
    recorder.file_named.erase(*old_name);
    recorder.file_named[*new_name] = file;
    record({.kind = Call::Kind::kRename, .file = file, .name = *old_name, .to = *new_name});
  }
  return real(from, to);
}

int unlink(const char* path) noexcept {
  static auto* const real = next<int(const char*)>("unlink");
  if (const auto name = recorded_name(path)) {
    recorder.file_named.erase(*name);
    record({.kind = Call::Kind::kUnlink, .name = *name});
  }
  return real(path);
}

int remove(const char* path) noexcept {
  static auto* const real = next<int(const char*)>("remove");
  if (const auto name = recorded_name(path)) {
    recorder.file_named.erase(*name);
    record({.kind = Call::Kind::kUnlink, .name = *name});
  }
  return real(path);
}

}  // extern "C"

namespace {

using namespace checkpoint_fixture;
using Bits = std::mt19937_64;

// A disk after the first `count` calls and a power cut.
class Disk {
 public:
  Disk(const std::vector<Call>& calls, std::size_t count, Bits& bits) : bits_(bits) {
    for (std::size_t i = 0; i < count; ++i) take(calls[i]);
  }

  void write_to(const std::filesystem::path& folder) {
    // The names that survive: all that are synced, and any of the others.
    for (const Call* call : names_pending_) {
      if (chance(50)) apply_name(*call);
    }
    for (const auto& [name, file] : names_) {
      std::string content = synced_[file];
      for (const Call* call : pending_[file]) {
        if (chance(60)) apply(*call, content, chance(30));
      }
      write_bytes((folder / name).string(), as_bytes(content));
    }
  }

 private:
  static Bytes as_bytes(const std::string& text) {
    const auto* data = reinterpret_cast<const std::byte*>(text.data());
    return {data, data + text.size()};
  }
  bool chance(unsigned percent) { return bits_() % 100 < percent; }

  void take(const Call& call) {
    switch (call.kind) {
      case Call::Kind::kWrite:
      case Call::Kind::kTruncate:
        pending_[call.file].push_back(&call);
        return;
      case Call::Kind::kSync:
        for (const Call* done : std::exchange(pending_[call.file], {}))
          apply(*done, synced_[call.file], false);
        return;
      case Call::Kind::kCreate:
      case Call::Kind::kRename:
      case Call::Kind::kUnlink:
        names_pending_.push_back(&call);
        return;
      case Call::Kind::kSyncFolder:
        for (const Call* done : std::exchange(names_pending_, {})) apply_name(*done);
        return;
      case Call::Kind::kSaved:
        return;
    }
  }
  void apply(const Call& call, std::string& content, bool torn) {
    if (call.kind == Call::Kind::kTruncate) {
      content.resize(call.offset);
      return;
    }
    // A torn write: some of its sectors.
    constexpr std::size_t kSector = 512;
    if (content.size() < call.offset + call.bytes.size())
      content.resize(call.offset + call.bytes.size());
    for (std::size_t at = 0; at < call.bytes.size(); at += kSector) {
      if (torn && chance(50)) continue;
      const std::size_t size = std::min(kSector, call.bytes.size() - at);
      content.replace(call.offset + at, size, call.bytes, at, size);
    }
  }
  void apply_name(const Call& call) {
    if (call.kind != Call::Kind::kCreate) names_.erase(call.name);
    if (call.kind == Call::Kind::kCreate) names_[call.name] = call.file;
    if (call.kind == Call::Kind::kRename) names_[call.to] = call.file;
  }

  Bits& bits_;
  std::map<std::string, int> names_;
  std::vector<const Call*> names_pending_;
  std::map<int, std::string> synced_;
  std::map<int, std::vector<const Call*>> pending_;
};

TEST(PowerCut, TheLastCheckpointThatWasReportedAsSavedCanBeLoaded) {
  test_support::TemporaryDirectory folder;
  recorder.folder = folder.path().string();
  constexpr std::int64_t kSteps = 6, kBest = 2;
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    io::save_to_directory(sample_checkpoint(step), recorder.folder, 2, step == kBest);
    record({.kind = Call::Kind::kSaved, .step = step});
  }
  recorder.folder.clear();
  const std::vector<Call> calls = recorder.calls;
  ASSERT_GT(calls.size(), 50u);

  const char* given = std::getenv("ENGINE_POWER_CUTS");
  const int cuts = given == nullptr ? 2'500 : std::stoi(given);
  Bits bits(1);
  for (int cut = 0; cut < cuts; ++cut) {
    const std::size_t count = bits() % (calls.size() + 1);
    std::int64_t saved = -1;
    for (std::size_t i = 0; i < count; ++i)
      saved = std::max(saved, calls[i].step > 0 ? calls[i].step : saved);
    test_support::TemporaryDirectory after;
    Disk(calls, count, bits).write_to(after.path());
    const std::string path = io::find_newest_checkpoint(after.path().string(), nullptr);
    const std::int64_t step = path.empty() ? -1 : io::load_checkpoint(path).global_step;
    ASSERT_GE(step, saved) << "cut " << cut << " after call " << count;
    ASSERT_LE(step, saved < 0 ? 1 : saved + 1) << "cut " << cut << " after call " << count;
    if (saved >= kBest) {
      EXPECT_EQ(io::load_checkpoint((after.path() / io::checkpoint_file_name(kBest)).string())
                    .global_step,
                kBest)
          << "cut " << cut << " after call " << count;
    }
  }
  std::printf("%d power cuts of %zu calls\n", cuts, calls.size());
}

}  // namespace
