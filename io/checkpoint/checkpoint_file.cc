// Snapshots to files, piece by piece, and back, with every byte validated.
#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <semaphore>

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

void take_arrays(Bytes tensors, const std::vector<Placement>& placements, const std::string& file,
                 Checkpoint& checkpoint) {
  check_length(end_of(placements), tensors.size(), file);
  for (std::size_t i = 0; i < placements.size(); ++i) {
    NamedArray& array = checkpoint.arrays[i];
    const Bytes data = tensors.subspan(placements[i].offset, placements[i].bytes);
    if (digest_of(data) != placements[i].digest) fail_array(array.section, array.name, file);
    array.data.assign(data.begin(), data.end());
  }
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

constexpr int kPassing = 2;  // one is read while the other one is put

// Where the arrays that a target wants are while it takes them: two blocks in turns, which stay in
// the cache where the arrays are small enough, and whose pages are touched for the first time once.
class PassingArrays {
 public:
  explicit PassingArrays(std::uint64_t largest) : largest_(largest) {}

  // Waits until the one before the last is free again.
  std::span<std::byte> next(std::uint64_t bytes) {
    free_.acquire();
    std::unique_ptr<std::byte[]>& block = blocks_[turn_++ % kPassing];
    if (!block) {
      block = std::make_unique_for_overwrite<std::byte[]>(largest_);
      base::use_large_pages(block.get(), largest_);
    }
    return {block.get(), static_cast<std::size_t>(bytes)};
  }
  void release() { free_.release(); }

 private:
  std::uint64_t largest_;
  std::unique_ptr<std::byte[]> blocks_[kPassing];
  std::size_t turn_ = 0;
  std::counting_semaphore<kPassing> free_{kPassing};
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

// Reads so many bytes from `at` on piece by piece to place_of(offset, length), and calls
// take(piece) after each.
template <class PlaceOf, class Take>
void read_pieces(const ByteSource& file, std::uint64_t at, std::uint64_t bytes,
                 const PlaceOf& place_of, const Take& take) {
  for (std::uint64_t done = 0; done < bytes;) {
    const std::uint64_t length = std::min(kBlockBytes, bytes - done);
    const std::span<std::byte> part = place_of(done, length);
    file.read(at + done, part);
    take(part);
    done += length;
  }
}

}  // namespace

// Piece by piece: what was read is still in the cache when it is digested and copied, and memory is
// touched for the first time only once. Beside it another thread makes the digest of the whole and
// puts the arrays.
Checkpoint load_checkpoint(const std::string& path, ArrayTarget& target) {
  const std::unique_ptr<ByteSource> file = open_bytes(path);
  Head head = read_head(*file);  // a foreign file, however large, is told at once
  check_length(end_of(head.placements), file->size() - kTrailerBytes - head.tensors_begin, path);
  target.begin(head.checkpoint);
  StreamDigest content;
  content.add(file->bytes(0, head.tensors_begin));
  PassingArrays passing(largest_wanted(head, target));
  std::vector<std::byte> block(kBlockBytes);
  std::exception_ptr refused;  // of the target
  base::BackgroundJobs beside;
  for (std::size_t i = 0; i < head.placements.size(); ++i) {
    NamedArray& array = head.checkpoint.arrays[i];
    const Placement& placement = head.placements[i];
    const std::uint64_t at = head.tensors_begin + placement.offset;
    StreamDigest digest;
    const bool wanted = target.wants(array);
    std::span<std::byte> data;
    if (wanted) {
      data = passing.next(placement.bytes);
      read_pieces(
          *file, at, placement.bytes,
          [&](std::uint64_t done, std::uint64_t length) { return data.subspan(done, length); },
          [&](Bytes part) { digest.add(part); });
    } else {
      array.data.reserve(placement.bytes);
      base::use_large_pages(array.data.data(), placement.bytes);
      read_pieces(
          *file, at, placement.bytes,
          [&](std::uint64_t, std::uint64_t length) { return std::span(block).first(length); },
          [&](Bytes part) {
            digest.add(part);
            array.data.insert(array.data.end(), part.begin(), part.end());
          });
    }
    if (digest.value() != placement.digest) fail_array(array.section, array.name, path);
    if (!wanted)
      beside.add([&content, &array] { content.add(array.data); });
    else
      beside.add([&, data, i] {
        content.add(data);
        try {
          if (!refused) target.put(head.checkpoint.arrays[i], data);
        } catch (...) {
          refused = std::current_exception();
        }
        passing.release();
      });
  }
  beside.finish();
  if (refused) std::rethrow_exception(refused);
  check_trailer(file->bytes(end_of(head.placements) + head.tensors_begin, kTrailerBytes),
                content.value(), path);
  return std::move(head.checkpoint);
}

Checkpoint load_checkpoint(const std::string& path) {
  Everything everything;
  return load_checkpoint(path, everything);
}

void check_checkpoint(const std::string& path) {
  open_checkpoint_arrays(open_bytes(path))->finish();
}

Checkpoint load_description(const std::string& path) {
  return read_head(*open_bytes(path)).checkpoint;
}

Checkpoint parse_checkpoint(const std::vector<std::byte>& bytes, const std::string& name) {
  Head head = read_head(*memory_bytes(bytes, name));
  const Bytes content = Bytes(bytes).first(bytes.size() - kTrailerBytes);
  take_arrays(content.subspan(head.tensors_begin), head.placements, name, head.checkpoint);
  check_trailer(Bytes(bytes).last(kTrailerBytes), digest_of(content), name);
  return std::move(head.checkpoint);
}

}  // namespace io
