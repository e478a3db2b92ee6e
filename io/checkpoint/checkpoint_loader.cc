// Snapshots from files, with every byte validated. Several threads share the pieces: each reads one
// into memory that stays in its core's cache, digests it, and puts it where it belongs.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "io/base/digests/digest_parts.h"
#include "io/base/machine/cpu_affinity.h"
#include "io/base/machine/large_pages.h"
#include "io/base/threads/shared_jobs.h"
#include "io/checkpoint/array_target.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_format.h"

namespace io {
namespace {

using namespace format;

constexpr std::uint64_t kPieceBytes = 512 << 10;  // stays in a core's cache until it is put
constexpr std::uint64_t kLargestPiece = 2 << 20;  // unless a single row is longer
constexpr std::uint64_t kRowsTogether = 32;   // of a matrix that is transposed: whole cache lines
constexpr std::size_t kMostPiecesAhead = 16;  // whose digests wait for one before
constexpr std::uint64_t kBytesOfWorker = 1 << 22;  // fewer are done before it begins
constexpr std::size_t kMostWorkers = 8;

struct Piece {
  std::size_t array;
  std::uint64_t first, rows;   // of an array that is wanted
  std::uint64_t begin, bytes;  // in the array
  bool wanted;
};

std::uint64_t rows_at_once(std::uint64_t row_bytes) {
  const std::uint64_t few = kPieceBytes / row_bytes + 1,
                      lines = (few + kRowsTogether - 1) / kRowsTogether * kRowsTogether;
  return std::max<std::uint64_t>(1, std::min(lines, kLargestPiece / row_bytes));
}

// Of at least one piece, so that every array is put and has its digest compared.
void cut(std::size_t index, const NamedArray& array, std::uint64_t bytes, bool wanted,
         std::vector<Piece>& pieces) {
  const std::uint64_t rows =
      array.shape.empty() ? 1 : static_cast<std::uint64_t>(array.shape.front());
  if (!wanted || bytes == 0) return pieces.push_back({index, 0, rows, 0, bytes, wanted});
  const std::uint64_t row_bytes = bytes / rows, most = rows_at_once(row_bytes);
  for (std::uint64_t row = 0; row < rows; row += most) {
    const std::uint64_t count = std::min(most, rows - row);
    pieces.push_back({index, row, count, row * row_bytes, count * row_bytes, wanted});
  }
}

// Holds the arrays and the file against their digests, from the beginning on as far as there are
// no gaps. Any thread.
class Digests {
 public:
  Digests(const ByteSource& file, const Head& head, const std::vector<Piece>& pieces)
      : file_(file), head_(head), pieces_(pieces) {
    base::DigestPart part(0);
    part.add(file.bytes(0, head.tensors_begin));
    content_.add(part);
  }

  struct Parts {
    base::DigestPart content, array;  // of a piece: as one of the file, and of its array
  };
  // Throws DataError.
  void add(std::size_t piece, Parts parts) {
    const std::lock_guard lock(mutex_);
    ahead_.emplace(piece, std::move(parts));
    for (; !ahead_.empty() && ahead_.begin()->first == next_; ahead_.erase(ahead_.begin()), ++next_)
      add_next(ahead_.begin()->second);
  }
  base::Digest content() const { return content_.value(); }  // after the last piece

 private:
  void add_next(const Parts& parts) {
    const Piece& piece = pieces_[next_];
    content_.add(parts.content);
    if (piece.begin == 0) array_ = {};
    array_.add(parts.array);
    const Placement& placement = head_.placements[piece.array];
    if (piece.begin + piece.bytes < placement.bytes) return;
    const NamedArray& array = head_.checkpoint.arrays[piece.array];
    if (array_.value() != placement.digest) fail_array(array.section, array.name, file_.name());
  }

  const ByteSource& file_;
  const Head& head_;
  const std::vector<Piece>& pieces_;
  std::mutex mutex_;
  base::PartedDigest content_, array_;  // guarded, as what follows; of the next piece's array
  std::size_t next_ = 0;
  std::map<std::size_t, Parts> ahead_;
};

// One worker's. Its memory is touched for the first time when it is needed, and stays.
class Loader {
 public:
  Loader(const ByteSource& file, Head& head, ArrayTarget& target, std::uint64_t most)
      : file_(file), head_(head), target_(target), most_(most) {}

  Digests::Parts load(const Piece& piece) {
    NamedArray& array = head_.checkpoint.arrays[piece.array];
    if (!memory_) memory_ = std::make_unique_for_overwrite<std::byte[]>(most_);
    if (!piece.wanted) {
      array.data.reserve(piece.bytes);
      base::use_large_pages(array.data.data(), piece.bytes);
    }
    const std::uint64_t at =
        head_.tensors_begin + head_.placements[piece.array].offset + piece.begin;
    Digests::Parts parts{base::DigestPart(at), base::DigestPart(piece.begin)};
    for (std::uint64_t done = 0; done < piece.bytes; done += kPieceBytes) {
      const std::span block(memory_.get() + (piece.wanted ? done : 0),
                            std::min(kPieceBytes, piece.bytes - done));
      file_.read(at + done, block);
      parts.content.add(block);
      parts.array.add(block);
      if (!piece.wanted) array.data.insert(array.data.end(), block.begin(), block.end());
    }
    if (piece.wanted)
      target_.put(array, {static_cast<std::int64_t>(piece.first),
                          static_cast<std::int64_t>(piece.rows),
                          {memory_.get(), static_cast<std::size_t>(piece.bytes)}});
    return parts;
  }

 private:
  const ByteSource& file_;
  Head& head_;
  ArrayTarget& target_;
  std::uint64_t most_;
  std::unique_ptr<std::byte[]> memory_;
};

std::size_t workers_for(const ByteSource& file) {
  if (!file.many_readers()) return 1;
  return std::min({static_cast<std::size_t>(file.size() / kBytesOfWorker) + 1,
                   static_cast<std::size_t>(base::count_of_cpus()), kMostWorkers});
}

class Everything final : public ArrayTarget {  // goes into the checkpoint
 public:
  void begin(const Checkpoint&) override {}
  bool wants(const NamedArray&) const override { return false; }
  void put(const NamedArray&, const ArrayRows&) override {}
};

}  // namespace

Checkpoint load_checkpoint(const ByteSource& file, ArrayTarget& target) {
  Head head = read_head(file);  // a foreign file, however large, is told at once
  const std::uint64_t end = file.size() - kTrailerBytes;
  check_length(
      head.placements.empty() ? 0 : head.placements.back().offset + head.placements.back().bytes,
      end - head.tensors_begin, file.name());
  target.begin(head.checkpoint);
  std::vector<Piece> pieces;
  std::uint64_t most = kPieceBytes;
  for (std::size_t i = 0; i < head.placements.size(); ++i) {
    const NamedArray& array = head.checkpoint.arrays[i];
    cut(i, array, head.placements[i].bytes, target.wants(array), pieces);
  }
  for (const Piece& piece : pieces)
    if (piece.wanted) most = std::max(most, piece.bytes);
  Digests digests(file, head, pieces);
  std::vector<Loader> loaders;
  const std::size_t workers = workers_for(file);
  for (std::size_t w = 0; w < workers; ++w) loaders.emplace_back(file, head, target, most);
  base::share_jobs(pieces.size(), workers, kMostPiecesAhead,
                   [&](std::size_t worker, std::size_t piece) {
                     digests.add(piece, loaders[worker].load(pieces[piece]));
                   });
  check_trailer(file.bytes(end, kTrailerBytes), digests.content(), file.name());
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
