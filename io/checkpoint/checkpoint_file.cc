// Writes checkpoints to files, piece by piece.
#include <algorithm>
#include <cstdint>
#include <memory>

#include "io/base/threads/task_queue.h"
#include "io/checkpoint/array_source.h"
#include "io/checkpoint/atomic_file.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_digests.h"
#include "io/checkpoint/checkpoint_format.h"
#include "io/checkpoint/late_arrays.h"

namespace io {
namespace {

using namespace format;
using Bytes = std::span<const std::byte>;

// Returns the size of all arrays, which are contiguous.
std::uint64_t end_of(const std::vector<Placement>& placements) {
  return placements.empty() ? 0 : placements.back().offset + placements.back().bytes;
}

// Computes the placements of the arrays, without their digests.
std::vector<Placement> place(const Checkpoint& checkpoint) {
  std::vector<Placement> placements;
  std::uint64_t offset = 0;
  for (const NamedArray& array : checkpoint.arrays) {
    placements.push_back(
        {offset, array.data.size(), {}, digest_block_bytes(array.shape, array.data.size())});
    offset += array.data.size();
  }
  return placements;
}

}  // namespace

void save_checkpoint(const Checkpoint& checkpoint, const std::string& path) {
  save_checkpoint(checkpoint, path, [](std::size_t) {});
}

// The arrays are written before the header, although they follow it in the file: the header
// contains their digests, and the disk should start at once. It writes while later arrays are
// completed and digests are computed.
void save_checkpoint(const Checkpoint& checkpoint, const std::string& path,
                     const CompleteArray& complete) {
  std::vector<Placement> placements = place(checkpoint);
  check_header(checkpoint, placements, path);
  const std::uint64_t head_bytes = encode_head(checkpoint, placements).size(),
                      tensors = end_of(placements);

  AtomicFile file(path, head_bytes + tensors + kTrailerBytes);
  base::TaskQueue writing;
  for (std::size_t i = 0; i < placements.size(); ++i) {
    complete(i);
    writing.add(
        [&, i] { file.write_at(head_bytes + placements[i].offset, checkpoint.arrays[i].data); });
    placements[i].digest = digest_by_blocks(checkpoint.arrays[i].data, placements[i].block_bytes);
  }
  const std::vector<std::byte> head = encode_head(checkpoint, placements);
  writing.finish();
  file.write_at(0, head);
  file.write_at(head_bytes + tensors, encode_trailer(digest_of(head)));
  file.commit();
}

std::vector<std::byte> checkpoint_bytes(const Checkpoint& checkpoint) {
  std::vector<Placement> placements = place(checkpoint);
  for (std::size_t i = 0; i < placements.size(); ++i)
    placements[i].digest = digest_by_blocks(checkpoint.arrays[i].data, placements[i].block_bytes);
  std::vector<std::byte> bytes = encode_head(checkpoint, placements);
  const std::vector<std::byte> trailer = encode_trailer(digest_of(bytes));
  bytes.reserve(bytes.size() + end_of(placements) + kTrailerBytes);
  const auto append = [&](Bytes part) { bytes.insert(bytes.end(), part.begin(), part.end()); };
  for (const NamedArray& array : checkpoint.arrays) append(array.data);
  append(trailer);
  return bytes;
}

void check_checkpoint(const std::string& path) {
  open_checkpoint_arrays(open_bytes(path))->finish();
}

Checkpoint load_description(const std::string& path) {
  return read_head(*open_bytes(path)).checkpoint;
}

}  // namespace io
