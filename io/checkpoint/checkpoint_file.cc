// Snapshots to files, piece by piece, and back, with every byte validated.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>

#include "io/base/background_jobs.h"
#include "io/checkpoint/array_source.h"
#include "io/checkpoint/atomic_file.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_format.h"
#include "io/checkpoint/late_arrays.h"

namespace io {
namespace {

using namespace format;
using Bytes = std::span<const std::byte>;

constexpr std::uint64_t kBlockBytes = 256 << 10, kLargePageBytes = 2 << 20;

// Of all arrays together, which lie one after the other.
std::uint64_t end_of(const std::vector<Placement>& placements) {
  return placements.empty() ? 0 : placements.back().offset + placements.back().bytes;
}

// Memory for so many bytes. The system has less work with large pages when it is written first.
void reserve(std::vector<std::byte>& data, std::uint64_t bytes) {
  data.reserve(bytes);
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  // From the first whole page on; advice only.
  const auto skipped = -reinterpret_cast<std::uintptr_t>(data.data()) % page;
  if (bytes >= kLargePageBytes)
    madvise(data.data() + skipped, (bytes - skipped) / page * page, MADV_HUGEPAGE);
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

// Block by block: what was read is still in the cache when it is digested and copied, and the
// arrays' memory is touched only once. The digest of the whole is made beside it.
Checkpoint load_checkpoint(const std::string& path) {
  const std::unique_ptr<ByteSource> file = open_bytes(path);
  Head head = read_head(*file);  // a foreign file, however large, is told at once
  check_length(end_of(head.placements), file->size() - kTrailerBytes - head.tensors_begin, path);
  StreamDigest content;
  content.add(file->bytes(0, head.tensors_begin));
  base::BackgroundJobs digesting;
  std::vector<std::byte> block(kBlockBytes);
  std::uint64_t at = head.tensors_begin;
  for (std::size_t i = 0; i < head.placements.size(); ++i) {
    NamedArray& array = head.checkpoint.arrays[i];
    const Placement& placement = head.placements[i];
    reserve(array.data, placement.bytes);
    StreamDigest digest;
    while (array.data.size() < placement.bytes) {
      const auto part = std::span(block).first(
          std::min<std::uint64_t>(kBlockBytes, placement.bytes - array.data.size()));
      file->read(at, part);
      at += part.size();
      digest.add(part);
      array.data.insert(array.data.end(), part.begin(), part.end());
    }
    if (digest.value() != placement.digest) fail_array(array.section, array.name, path);
    digesting.add([&content, &array] { content.add(array.data); });
  }
  digesting.finish();
  check_trailer(file->bytes(at, kTrailerBytes), content.value(), path);
  return std::move(head.checkpoint);
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
