// Snapshots to files, piece by piece, and back, with every byte validated.
#include <memory>

#include "io/checkpoint/array_source.h"
#include "io/checkpoint/atomic_file.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_format.h"

namespace io {
namespace {

using namespace format;
using Bytes = std::span<const std::byte>;

std::vector<Placement> place(const Checkpoint& checkpoint) {
  std::vector<Placement> placements;
  std::uint64_t offset = 0;
  for (const NamedArray& array : checkpoint.arrays) {
    placements.push_back({offset, array.data.size(), digest_of(array.data)});
    offset += array.data.size();
  }
  return placements;
}

void take_arrays(Bytes tensors, const std::vector<Placement>& placements, const std::string& file,
                 Checkpoint& checkpoint) {
  const std::uint64_t end =
      placements.empty() ? 0 : placements.back().offset + placements.back().bytes;
  check_length(end, tensors.size(), file);
  for (std::size_t i = 0; i < placements.size(); ++i) {
    NamedArray& array = checkpoint.arrays[i];
    const Bytes data = tensors.subspan(placements[i].offset, placements[i].bytes);
    if (digest_of(data) != placements[i].digest) fail_array(array.section, array.name, file);
    array.data.assign(data.begin(), data.end());
  }
}

}  // namespace

void save_checkpoint(const Checkpoint& checkpoint, const std::string& path) {
  const std::vector<Placement> placements = place(checkpoint);
  check_header(checkpoint, placements, path);
  const std::vector<std::byte> head = encode_head(checkpoint, placements);
  const std::uint64_t tensors =
      placements.empty() ? 0 : placements.back().offset + placements.back().bytes;

  AtomicFile file(path, head.size() + tensors + kTrailerBytes);
  StreamDigest digest;
  const auto write = [&](Bytes bytes) {
    digest.add(bytes);
    file.write(bytes);
  };
  write(head);
  for (const NamedArray& array : checkpoint.arrays) write(array.data);
  file.write(encode_trailer(digest.value()));
  file.commit();
}

std::vector<std::byte> read_file(const std::string& path) {
  const std::unique_ptr<ByteSource> file = open_bytes(path);
  return file->bytes(0, file->size());
}

Checkpoint load_checkpoint(const std::string& path) {
  const std::unique_ptr<ByteSource> file = open_bytes(path);
  if (!is_checkpoint(*file))
    static_cast<void>(read_head(*file));  // throws: a foreign file, however large, is told at once
  return parse_checkpoint(file->bytes(0, file->size()), path);
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
