// Several threads share the pieces: each reads one into memory that stays in its core's cache,
// computes its digest, and stores it in its destination.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "io/base/machine/cpu_affinity.h"
#include "io/base/machine/large_pages.h"
#include "io/base/threads/parallel_for.h"
#include "io/checkpoint/array_target.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_digests.h"
#include "io/checkpoint/checkpoint_format.h"

namespace io {
namespace {

using namespace format;

constexpr std::uint64_t kReadBytes = 512 << 10;    // read at once: stays in a core's cache
constexpr std::size_t kMaxPiecesAhead = 16;        // beyond the oldest unfinished one
constexpr std::uint64_t kBytesOfWorker = 1 << 22;  // minimum bytes per worker
constexpr std::size_t kMaxWorkers = 8;

// One digest block of a wanted array, or all of an unwanted one.
struct Piece {
  std::size_t array;
  std::uint64_t first, rows;   // rows of a wanted array
  std::uint64_t begin, bytes;  // within the array
  bool wanted;
};

// Creates at least one piece, so that every array is passed to put().
void cut(std::size_t index, const NamedArray& array, const Placement& placement, bool wanted,
         std::vector<Piece>& pieces) {
  const std::uint64_t bytes = placement.bytes,
                      rows =
                          array.shape.empty() ? 1 : static_cast<std::uint64_t>(array.shape.front());
  if (!wanted || bytes == 0) return pieces.push_back({index, 0, rows, 0, bytes, wanted});
  const std::uint64_t row_bytes = bytes / rows, most = placement.block_bytes / row_bytes;
  for (std::uint64_t row = 0; row < rows; row += most) {
    const std::uint64_t count = std::min(most, rows - row);
    pieces.push_back({index, row, count, row * row_bytes, count * row_bytes, wanted});
  }
}

// The state of one worker. Its memory is touched when it is first needed, and is reused.
class Loader {
 public:
  Loader(const ByteSource& file, Head& head, ArrayTarget& target, std::uint64_t max_piece_bytes)
      : file_(file), head_(head), target_(target), max_piece_bytes_(max_piece_bytes) {}

  // Returns the digests of the piece's blocks.
  std::vector<Digest> load(const Piece& piece) {
    NamedArray& array = head_.checkpoint.arrays[piece.array];
    const Placement& placement = head_.placements[piece.array];
    if (!memory_) memory_ = std::make_unique_for_overwrite<std::byte[]>(max_piece_bytes_);
    if (!piece.wanted) {
      array.data.reserve(piece.bytes);
      base::use_large_pages(array.data.data(), piece.bytes);
    }
    std::vector<Digest> digests;
    for (std::uint64_t done = 0; done < piece.bytes;) {
      const std::uint64_t block = std::min(placement.block_bytes, piece.bytes - done);
      digests.push_back(read_block(piece, done, block, array));
      done += block;
    }
    if (piece.wanted)
      target_.put(array, {static_cast<std::int64_t>(piece.first),
                          static_cast<std::int64_t>(piece.rows),
                          {memory_.get(), static_cast<std::size_t>(piece.bytes)}});
    return digests;
  }

 private:
  Digest read_block(const Piece& piece, std::uint64_t from, std::uint64_t bytes,
                    NamedArray& array) {
    const std::uint64_t at =
        head_.tensors_begin + head_.placements[piece.array].offset + piece.begin + from;
    StreamDigest digest;
    for (std::uint64_t done = 0; done < bytes; done += kReadBytes) {
      const std::span part(memory_.get() + (piece.wanted ? from + done : 0),
                           std::min(kReadBytes, bytes - done));
      file_.read(at + done, part);
      digest.add(part);
      if (!piece.wanted) array.data.insert(array.data.end(), part.begin(), part.end());
    }
    return digest.value();
  }

  const ByteSource& file_;
  Head& head_;
  ArrayTarget& target_;
  std::uint64_t max_piece_bytes_;
  std::unique_ptr<std::byte[]> memory_;
};

std::size_t workers_for(const ByteSource& file) {
  if (!file.many_readers()) return 1;
  return std::min({static_cast<std::size_t>(file.size() / kBytesOfWorker) + 1,
                   static_cast<std::size_t>(base::count_of_cpus()), kMaxWorkers});
}

class Everything final : public ArrayTarget {  // stores all arrays in the checkpoint
 public:
  void begin(const Checkpoint&) override {}
  bool wants(const NamedArray&) const override { return false; }
  void put(const NamedArray&, const ArrayRows&) override {}
};

}  // namespace

Checkpoint load_checkpoint(const ByteSource& file, ArrayTarget& target) {
  Head head = read_head(file);  // immediately rejects a foreign file of any size
  const std::uint64_t end = file.size() - kTrailerBytes;
  check_length(
      head.placements.empty() ? 0 : head.placements.back().offset + head.placements.back().bytes,
      end - head.tensors_begin, file.name());
  const bool by_blocks = head.version >= kBlockVersion;
  if (!by_blocks) check_whole_file(file, head);
  target.begin(head.checkpoint);
  std::vector<Piece> pieces;
  std::uint64_t max_piece_bytes = kReadBytes;
  for (std::size_t i = 0; i < head.placements.size(); ++i) {
    const NamedArray& array = head.checkpoint.arrays[i];
    cut(i, array, head.placements[i], target.wants(array), pieces);
  }
  for (const Piece& piece : pieces)
    if (piece.wanted) max_piece_bytes = std::max(max_piece_bytes, piece.bytes);
  BlockDigests digests(head.placements);
  std::mutex mutex;  // guards the digests
  std::vector<Loader> loaders;
  const std::size_t workers = workers_for(file);
  for (std::size_t w = 0; w < workers; ++w)
    loaders.emplace_back(file, head, target, max_piece_bytes);
  base::parallel_for(
      pieces.size(), workers, kMaxPiecesAhead, [&](std::size_t worker, std::size_t p) {
        const Piece& piece = pieces[p];
        const std::vector<Digest> found = loaders[worker].load(piece);
        const std::uint64_t first = piece.begin / head.placements[piece.array].block_bytes;
        const std::lock_guard lock(mutex);
        for (std::size_t b = 0; b < found.size(); ++b)
          digests.set(piece.array, first + b, found[b]);
      });
  for (std::size_t i = 0; by_blocks && i < head.placements.size(); ++i)
    if (!digests.match(i, head.placements[i])) {
      const NamedArray& array = head.checkpoint.arrays[i];
      fail_array(array.section, array.name, file.name());
    }
  if (by_blocks) check_trailer(file.bytes(end, kTrailerBytes), head.digest, file.name());
  return std::move(head.checkpoint);
}

Checkpoint load_checkpoint(const std::string& path) {
  Everything everything;
  return load_checkpoint(*open_bytes(path), everything);
}

Checkpoint parse_checkpoint(const std::vector<std::byte>& bytes, const std::string& name) {
  Everything everything;
  return load_checkpoint(*memory_bytes(bytes, name), everything);
}

}  // namespace io
