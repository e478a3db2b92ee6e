// Snapshots to files, piece by piece, and back, with every byte validated.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "io/base/background_jobs.h"
#include "io/base/large_pages.h"
#include "io/checkpoint/array_source.h"
#include "io/checkpoint/array_target.h"
#include "io/checkpoint/atomic_file.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_format.h"
#include "io/checkpoint/late_arrays.h"

namespace io {
namespace {

using namespace format;
using Bytes = std::span<const std::byte>;

constexpr std::uint64_t kBlockBytes = 256 << 10;

// Of all arrays together, which lie one after the other.
std::uint64_t end_of(const std::vector<Placement>& placements) {
  return placements.empty() ? 0 : placements.back().offset + placements.back().bytes;
}

// Where the arrays lie, without their digests.
std::vector<Placement> place(const Checkpoint& checkpoint) {
  std::vector<Placement> placements;
  std::uint64_t offset = 0;
  for (const NamedArray& array : checkpoint.arrays) {
    placements.push_back({offset, array.data.size(), {}});
    offset += array.data.size();
  }
  return placements;
}

}  // namespace

void save_checkpoint(const Checkpoint& checkpoint, const std::string& path) {
  save_checkpoint(checkpoint, path, [](std::size_t) {});
}

// The arrays come first, although they lie behind the header: it has their digests, and the disk is
// to begin at once. It works while later arrays are completed and digests are made.
void save_checkpoint(const Checkpoint& checkpoint, const std::string& path,
                     const CompleteArray& complete) {
  std::vector<Placement> placements = place(checkpoint);
  check_header(checkpoint, placements, path);
  const std::uint64_t head_bytes = encode_head(checkpoint, placements).size(),
                      tensors = end_of(placements);

  AtomicFile file(path, head_bytes + tensors + kTrailerBytes);
  base::BackgroundJobs writing;
  for (std::size_t i = 0; i < placements.size(); ++i) {
    complete(i);
    writing.add(
        [&, i] { file.write_at(head_bytes + placements[i].offset, checkpoint.arrays[i].data); });
    placements[i].digest = digest_of(checkpoint.arrays[i].data);
  }
  const std::vector<std::byte> head = encode_head(checkpoint, placements);
  StreamDigest digest;
  digest.add(head);
  for (const NamedArray& array : checkpoint.arrays) digest.add(array.data);
  writing.finish();
  file.write_at(0, head);
  file.write_at(head_bytes + tensors, encode_trailer(digest.value()));
  file.commit();
}

std::vector<std::byte> checkpoint_bytes(const Checkpoint& checkpoint) {
  std::vector<Placement> placements = place(checkpoint);
  for (std::size_t i = 0; i < placements.size(); ++i)
    placements[i].digest = digest_of(checkpoint.arrays[i].data);
  std::vector<std::byte> bytes = encode_head(checkpoint, placements);
  bytes.reserve(bytes.size() + end_of(placements) + kTrailerBytes);
  const auto append = [&](Bytes part) { bytes.insert(bytes.end(), part.begin(), part.end()); };
  for (const NamedArray& array : checkpoint.arrays) append(array.data);
  append(encode_trailer(digest_of(bytes)));
  return bytes;
}

std::vector<std::byte> read_file(const std::string& path) {
  const std::unique_ptr<ByteSource> file = open_bytes(path);
  return file->bytes(0, file->size());
}

namespace {

// Of memory that is touched for the first time when it is needed, and stays: in the cache, where it
// is small enough.
class Block {
 public:
  std::span<std::byte> first(std::uint64_t bytes, std::uint64_t largest) {
    if (!memory_) {
      memory_ = std::make_unique_for_overwrite<std::byte[]>(largest);
      base::use_large_pages(memory_.get(), largest);
    }
    return {memory_.get(), static_cast<std::size_t>(bytes)};
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
};

// Puts arrays, beside the caller or, while another one is still being put, at once. After an array
// that the target has refused beside the caller none is put there any more.
class Putting {
 public:
  Putting(ArrayTarget& target, std::uint64_t largest) : target_(target), largest_(largest) {}

  // For the next array; to be put before this is called again.
  std::span<std::byte> room(std::uint64_t bytes) { return mine_.first(bytes, largest_); }
  void put(const NamedArray& array, Bytes data) {
    if (busy_.exchange(true)) return target_.put(array, data);
    std::swap(mine_, passed_on_);
    beside_.add([this, &array, data] {
      target_.put(array, data);
      busy_ = false;
    });
  }
  void finish() { beside_.finish(); }

 private:
  ArrayTarget& target_;
  std::uint64_t largest_;
  Block mine_, passed_on_;
  std::atomic<bool> busy_{false};  // with what was passed on
  base::BackgroundJobs beside_;    // last: it uses the others
};

std::uint64_t largest_wanted(const Head& head, const ArrayTarget& target) {
  std::uint64_t largest = 0;
  for (std::size_t i = 0; i < head.placements.size(); ++i)
    if (target.wants(head.checkpoint.arrays[i]))
      largest = std::max(largest, head.placements[i].bytes);
  return largest;
}

class Everything final : public ArrayTarget {  // goes into the checkpoint
 public:
  void begin(const Checkpoint&) override {}
  bool wants(const NamedArray&) const override { return false; }
  void put(const NamedArray&, Bytes) override {}
};

}  // namespace

// Piece by piece: what was read is still in the cache when it is digested, and memory is touched
// for the first time only once. Another thread puts arrays meanwhile.
Checkpoint load_checkpoint(const ByteSource& file, ArrayTarget& target) {
  Head head = read_head(file);  // a foreign file, however large, is told at once
  const std::uint64_t end = file.size() - kTrailerBytes;
  check_length(end_of(head.placements), end - head.tensors_begin, file.name());
  target.begin(head.checkpoint);
  StreamDigest content;
  content.add(file.bytes(0, head.tensors_begin));
  Putting putting(target, largest_wanted(head, target));
  std::vector<std::byte> block;  // a piece of an array that is not wanted
  for (std::size_t i = 0; i < head.placements.size(); ++i) {
    NamedArray& array = head.checkpoint.arrays[i];
    const Placement& placement = head.placements[i];
    const bool wanted = target.wants(array);
    std::span<std::byte> data;
    if (wanted) {
      data = putting.room(placement.bytes);
    } else {
      block.resize(kBlockBytes);
      array.data.reserve(placement.bytes);
      base::use_large_pages(array.data.data(), placement.bytes);
    }
    StreamDigest digest;
    for (std::uint64_t done = 0; done < placement.bytes; done += kBlockBytes) {
      const std::uint64_t length = std::min(kBlockBytes, placement.bytes - done);
      const auto piece = wanted ? data.subspan(done, length) : std::span(block).first(length);
      file.read(head.tensors_begin + placement.offset + done, piece);
      digest.add(piece);
      content.add(piece);
      if (!wanted) array.data.insert(array.data.end(), piece.begin(), piece.end());
    }
    if (digest.value() != placement.digest) fail_array(array.section, array.name, file.name());
    if (wanted) putting.put(array, data);
  }
  putting.finish();
  check_trailer(file.bytes(end, kTrailerBytes), content.value(), file.name());
  return std::move(head.checkpoint);
}

Checkpoint load_checkpoint(const std::string& path) {
  Everything everything;
  return load_checkpoint(*open_bytes(path), everything);
}

void check_checkpoint(const std::string& path) {
  open_checkpoint_arrays(open_bytes(path))->finish();
}

Checkpoint load_description(const std::string& path) {
  return read_head(*open_bytes(path)).checkpoint;
}

Checkpoint parse_checkpoint(const std::vector<std::byte>& bytes, const std::string& name) {
  Everything everything;
  return load_checkpoint(*memory_bytes(bytes, name), everything);
}

}  // namespace io
