// A checkpoint as a source of arrays: its digest is taken along while the arrays are read in the
// file's order.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "io/base/digests/digest_parts.h"
#include "io/base/files/open_file.h"
#include "io/checkpoint/array_source.h"
#include "io/checkpoint/checkpoint_format.h"

namespace io {
namespace {

constexpr std::size_t kBlock = 1 << 18;
// Parts of the digest need memory. What is read further ahead of it, as where arrays are asked for
// in another order than they lie in, finish() reads again.
constexpr std::uint64_t kMostAhead = std::uint64_t{1} << 26;
constexpr std::size_t kMostPartsAhead = 4096;

class CheckpointSource : public ArraySource {
 public:
  explicit CheckpointSource(std::unique_ptr<ByteSource> bytes) : ArraySource(std::move(bytes)) {
    format::Head head = format::read_head(*bytes_);
    placements_ = std::move(head.placements);
    begin_ = head.tensors_begin;
    end_ = bytes_->size() - format::kTrailerBytes;
    const std::uint64_t last =
        placements_.empty() ? 0 : placements_.back().offset + placements_.back().bytes;
    format::check_length(last, end_ - begin_, name());
    for (std::size_t i = 0; i < placements_.size(); ++i) {
      NamedArray& array = head.checkpoint.arrays[i];
      entries_.push_back({std::move(array.name), array.section, array.type, std::move(array.shape),
                          placements_[i].bytes});
    }
    advance(begin_);
  }

  bool has_sections() const override { return true; }
  bool many_readers() const override { return true; }

  void read(std::size_t index, std::uint64_t offset, std::span<std::byte> target) override {
    const std::uint64_t at = begin_ + placements_[index].offset + offset;
    bytes_->read(at, target);
    if (const std::uint64_t known = digested(); at < known || at > known + kMostAhead) return;
    base::DigestPart part(at);
    part.add(target);
    const std::lock_guard lock(mutex_);
    if (at == digest_.size())
      digest_.add(part);
    else if (ahead_.size() < kMostPartsAhead)
      ahead_.emplace(at, std::move(part));
    follow();
  }

  void finish() override {
    advance(end_);
    std::byte trailer[format::kTrailerBytes];
    bytes_->read(end_, trailer);
    try {
      format::check_trailer(trailer, digest_.value(), name());
    } catch (const DataError&) {
      name_damaged_array();
      throw;
    }
  }

 private:
  std::uint64_t digested() {
    const std::lock_guard lock(mutex_);
    return digest_.size();
  }

  // Adds to the digest what has been read ahead of it, up to the first gap.
  void follow() {
    for (auto next = ahead_.begin(); next != ahead_.end() && next->first <= digest_.size();
         next = ahead_.erase(next))
      if (next->first == digest_.size()) digest_.add(next->second);
  }

  // Brings the digest to this place of the file, where nobody has read it.
  void advance(std::uint64_t until) {
    std::vector<std::byte> block(std::min<std::uint64_t>(kBlock, until - digest_.size()));
    for (follow(); digest_.size() < until; follow()) {
      const std::uint64_t at = digest_.size(),
                          gap = (ahead_.empty() ? until : ahead_.begin()->first) - at;
      const auto bytes = std::span(block).first(std::min<std::uint64_t>(block.size(), gap));
      bytes_->read(at, bytes);
      base::DigestPart part(at);
      part.add(bytes);
      digest_.add(part);
    }
  }

  // A second look, for a better message: which array does not match its own digest?
  void name_damaged_array() const {
    std::vector<std::byte> block(kBlock);
    for (std::size_t i = 0; i < placements_.size(); ++i) {
      format::StreamDigest digest;
      for (std::uint64_t at = 0; at < placements_[i].bytes;) {
        const auto part =
            std::span(block).first(std::min<std::uint64_t>(kBlock, placements_[i].bytes - at));
        bytes_->read(begin_ + placements_[i].offset + at, part);
        digest.add(part);
        at += part.size();
      }
      if (digest.value() != placements_[i].digest)
        format::fail_array(entries_[i].section, entries_[i].name, name());
    }
  }

  std::vector<format::Placement> placements_;
  std::uint64_t begin_ = 0, end_ = 0;  // of the tensors, in the file
  std::mutex mutex_;
  base::PartedDigest digest_;                        // of the file's beginning. Guarded
  std::map<std::uint64_t, base::DigestPart> ahead_;  // by place, read beyond a gap. Guarded
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
