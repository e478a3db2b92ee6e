// Blocks that are read sequentially are digested as they are read; finish() reads the others.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "io/base/files/open_file.h"
#include "io/checkpoint/array_source.h"
#include "io/checkpoint/checkpoint_digests.h"
#include "io/checkpoint/checkpoint_format.h"

namespace io {
namespace {

constexpr std::uint64_t kBlock = 1 << 18;
constexpr std::size_t kMaxOpenBlocks = 4096;

class CheckpointSource : public ArraySource {
 public:
  explicit CheckpointSource(std::unique_ptr<ByteSource> bytes)
      : ArraySource(std::move(bytes)),
        head_(format::read_head(*bytes_)),
        end_(bytes_->size() - format::kTrailerBytes),
        digests_(head_.placements) {
    const std::vector<format::Placement>& placements = head_.placements;
    const std::uint64_t last =
        placements.empty() ? 0 : placements.back().offset + placements.back().bytes;
    format::check_length(last, end_ - head_.tensors_begin, name());
    for (std::size_t i = 0; i < placements.size(); ++i) {
      const NamedArray& array = head_.checkpoint.arrays[i];
      entries_.push_back({array.name, array.section, array.type, array.shape, placements[i].bytes});
      if (by_blocks()) entries_.back().block_bytes = placements[i].block_bytes;
    }
  }

  bool has_sections() const override { return true; }
  bool many_readers() const override { return true; }

  void read(std::size_t index, std::uint64_t offset, std::span<std::byte> target) override {
    bytes_->read(head_.tensors_begin + head_.placements[index].offset + offset, target);
    if (!by_blocks()) return;
    const std::uint64_t block_bytes = head_.placements[index].block_bytes;
    while (!target.empty()) {
      const std::uint64_t block = offset / block_bytes, in_block = offset % block_bytes,
                          bytes = std::min<std::uint64_t>(target.size(), block_bytes - in_block);
      add(index, block, in_block, target.first(bytes));
      target = target.subspan(bytes);
      offset += bytes;
    }
  }

  void finish() override {
    if (!by_blocks()) return format::check_whole_file(*bytes_, head_);
    std::vector<std::byte> buffer(kBlock);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      for (std::uint64_t block = 0; block < digests_.count(i); ++block)
        if (!digests_.has(i, block)) digests_.set(i, block, read_block(i, block, buffer));
      if (!digests_.match(i, head_.placements[i]))
        format::fail_array(entries_[i].section, entries_[i].name, name());
    }
    format::check_trailer(bytes_->bytes(end_, format::kTrailerBytes), head_.digest, name());
  }

 private:
  using BlockId = std::pair<std::size_t, std::uint64_t>;  // array, block
  struct OpenBlock {
    format::StreamDigest digest;
    std::uint64_t done = 0;
  };

  bool by_blocks() const { return head_.version >= format::kBlockVersion; }

  std::uint64_t bytes_in(std::size_t array, std::uint64_t block) const {
    const format::Placement& placement = head_.placements[array];
    return std::min(placement.block_bytes, placement.bytes - block * placement.block_bytes);
  }

  // Adds `part` to the digest if it continues its block.
  void add(std::size_t array, std::uint64_t block, std::uint64_t from,
           std::span<const std::byte> part) {
    const BlockId id{array, block};
    OpenBlock open;
    {
      const std::lock_guard lock(mutex_);
      if (digests_.has(array, block)) return;
      if (from > 0) {
        const auto found = open_.find(id);
        if (found == open_.end() || found->second.done != from) return;
        open = std::move(found->second);
        open_.erase(found);
      }
    }
    open.digest.add(part);
    open.done += part.size();
    const std::lock_guard lock(mutex_);
    if (open.done == bytes_in(array, block))
      digests_.set(array, block, open.digest.value());
    else if (open_.size() < kMaxOpenBlocks)
      open_.insert_or_assign(id, std::move(open));
  }

  format::Digest read_block(std::size_t array, std::uint64_t block,
                            std::span<std::byte> buffer) const {
    const format::Placement& placement = head_.placements[array];
    const std::uint64_t begin =
                            head_.tensors_begin + placement.offset + block * placement.block_bytes,
                        bytes = bytes_in(array, block);
    format::StreamDigest digest;
    for (std::uint64_t done = 0; done < bytes; done += kBlock) {
      const auto part = buffer.first(std::min(kBlock, bytes - done));
      bytes_->read(begin + done, part);
      digest.add(part);
    }
    return digest.value();
  }

  format::Head head_;
  std::uint64_t end_;  // end of the tensors in the file
  std::mutex mutex_;
  format::BlockDigests digests_;       // guarded
  std::map<BlockId, OpenBlock> open_;  // started but not complete; guarded
};

}  // namespace

std::unique_ptr<ArraySource> open_checkpoint_arrays(std::unique_ptr<ByteSource> bytes) {
  return std::make_unique<CheckpointSource>(std::move(bytes));
}

bool is_checkpoint(const ByteSource& bytes) {
  if (bytes.size() < format::kMagic.size()) return false;
  std::byte first[format::kMagic.size()];
  bytes.read(0, first);
  return std::memcmp(first, format::kMagic.data(), sizeof first) == 0;
}

void ArraySource::check_unpacked(std::uint64_t bytes) const {
  const std::uint64_t most = unpacked_limit(file_bytes());
  if (bytes <= most) return;
  throw DataError(name() + ": unpacks to " + std::to_string(bytes) + " bytes, more than the " +
                  std::to_string(most) + " that a compressed file of " +
                  std::to_string(file_bytes()) +
                  " bytes may need in memory; save it without compression");
}

std::vector<NamedArray> read_arrays(ArraySource& source) {
  std::vector<NamedArray> arrays;
  std::uint64_t all = 0;
  for (const ArrayEntry& entry : source.entries())
    if (__builtin_add_overflow(all, entry.bytes, &all)) all = ~std::uint64_t{0};
  source.check_unpacked(all);
  for (std::size_t i = 0; i < source.entries().size(); ++i) {
    const ArrayEntry& entry = source.entries()[i];
    NamedArray array{.name = entry.name,
                     .section = entry.section,
                     .type = entry.type,
                     .shape = entry.shape,
                     .device = "cpu:0",
                     .data = {}};
    array.data.resize(entry.bytes);
    source.read(i, 0, array.data);
    arrays.push_back(std::move(array));
  }
  source.finish();
  return arrays;
}

}  // namespace io
