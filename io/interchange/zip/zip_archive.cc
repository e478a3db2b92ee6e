// Members of a zip archive: inflated or copied, summed on the way; and the writer.
#include "io/interchange/zip/zip_archive.h"

#include <zlib.h>

#include <algorithm>
#include <limits>

#include "io/base/digests/crc32.h"
#include "io/interchange/zip/zip_format.h"

namespace io {
namespace {

constexpr std::size_t kCopyBlock = 1 << 18;
constexpr std::uint64_t kLargest32 = 0xFFFFFFFE;  // larger values are in a zip64 field
constexpr std::uint64_t kLocal64Bytes = 20, kCentral64Bytes = 28;  // extra fields
constexpr std::size_t kMaxMembers = 0xFFFE;
constexpr std::uint64_t kPaddingField = 'F' | 'B' << 8;  // the same id as PyTorch's
constexpr char kPaddingByte = 'Z';
constexpr std::uint16_t kFirstDay = 1 << 5 | 1;  // 1980-01-01

class Record {  // consecutive little-endian numbers
 public:
  template <class T>
  Record& put(T value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Record& put16(std::uint64_t value) { return put(static_cast<std::uint16_t>(value)); }
  Record& put32(std::uint64_t value) { return put(static_cast<std::uint32_t>(value)); }
  Record& text(const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// Returns the size of the extra field that aligns a member's data, which would start at `begin`
// without it, to a multiple of `alignment`. 0: no field.
std::uint64_t padding_bytes(std::uint64_t begin, std::uint64_t alignment) {
  constexpr std::uint64_t kFieldHead = 4;
  if (alignment <= 1) return 0;
  return kFieldHead + (alignment - (begin + kFieldHead) % alignment) % alignment;
}

bool needs64(std::uint64_t size, std::uint64_t at) { return size > kLargest32 || at > kLargest32; }

}  // namespace

class ZipReader::Inflater {  // one deflated member, read sequentially
 public:
  Inflater(const ByteSource& file, std::size_t index, const ZipMember& member)
      : index_(index),
        file_(file),
        member_(member),
        input_(std::min<std::uint64_t>(kCopyBlock, member.compressed)) {
    if (inflateInit2(&stream_, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  std::size_t index() const { return index_; }
  std::uint64_t position() const { return position_; }

  void read(std::span<std::byte> target) {
    while (!target.empty()) {
      if (stream_.avail_in == 0 && taken_ < member_.compressed) refill();
      const auto want = static_cast<uInt>(std::min<std::size_t>(target.size(), 1 << 30));
      stream_.next_out = reinterpret_cast<Bytef*>(target.data());
      stream_.avail_out = want;
      const int status = inflate(&stream_, Z_NO_FLUSH);
      const std::size_t made = want - stream_.avail_out;
      position_ += made;
      target = target.subspan(made);
      ended_ = status == Z_STREAM_END;
      if (status != Z_OK && !(ended_ && target.empty())) fail();
    }
    if (position_ == member_.size) check_end();
  }

 private:
  [[noreturn]] void fail() const {
    throw DataError(file_.name() + ": '" + member_.name +
                    "' is damaged: its data does not inflate to " + std::to_string(member_.size) +
                    " bytes");
  }
  void refill() {
    const auto part = std::span(input_).first(
        std::min<std::uint64_t>(input_.size(), member_.compressed - taken_));
    file_.read(member_.begin + taken_, part);
    taken_ += part.size();
    stream_.next_in = reinterpret_cast<Bytef*>(part.data());
    stream_.avail_in = static_cast<uInt>(part.size());
  }
  // Called after the last byte: the stream must have ended, and nothing may follow.
  void check_end() {
    Bytef none = 0;
    while (!ended_) {
      if (stream_.avail_in == 0 && taken_ < member_.compressed) refill();
      stream_.next_out = &none;
      stream_.avail_out = 1;
      const int status = inflate(&stream_, Z_NO_FLUSH);
      if (stream_.avail_out == 0 || (status != Z_OK && status != Z_STREAM_END)) fail();
      ended_ = status == Z_STREAM_END;
    }
    if (stream_.avail_in != 0 || taken_ != member_.compressed) fail();
  }

  std::size_t index_;
  const ByteSource& file_;
  const ZipMember& member_;
  std::vector<std::byte> input_;
  std::uint64_t taken_ = 0, position_ = 0;
  bool ended_ = false;
  z_stream stream_{};
};

ZipReader::ZipReader(const ByteSource& file)
    : file_(file), members_(read_zip_directory(file)), progress_(members_.size()) {
  for (std::size_t i = 0; i < members_.size(); ++i)
    if (members_[i].size == 0 && members_[i].crc != 0)
      throw DataError(file_.name() + ": '" + members_[i].name +
                      "' is damaged: empty, but with a sum");
}
ZipReader::~ZipReader() = default;

void ZipReader::sum(std::size_t member, std::uint64_t offset, std::span<const std::byte> bytes) {
  Progress& p = progress_[member];
  if (offset > p.summed || offset + bytes.size() <= p.summed) return;
  p.crc = base::add_crc32(p.crc, bytes.subspan(p.summed - offset));
  p.summed = offset + bytes.size();
  if (p.summed == members_[member].size && p.crc != members_[member].crc)
    throw DataError(file_.name() + ": '" + members_[member].name +
                    "' is damaged (its CRC-32 does not match)");
}

void ZipReader::read(std::size_t member, std::uint64_t offset, std::span<std::byte> target) {
  const ZipMember& m = members_[member];
  if (m.deflated) {
    if (inflater_ == nullptr || inflater_->index() != member || inflater_->position() > offset)
      inflater_ = std::make_unique<Inflater>(file_, member, m);
    std::vector<std::byte> skipped;
    while (inflater_->position() < offset) {
      skipped.resize(std::min<std::uint64_t>(kCopyBlock, offset - inflater_->position()));
      const std::uint64_t at = inflater_->position();
      inflater_->read(skipped);
      sum(member, at, skipped);
    }
    inflater_->read(target);
  } else {
    file_.read(m.begin + offset, target);
  }
  sum(member, offset, target);
}

void ZipReader::finish() {
  std::vector<std::byte> block;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    do {  // once even for an empty member: it can be deflated
      block.resize(std::min<std::uint64_t>(kCopyBlock, members_[i].size - progress_[i].summed));
      if (!block.empty() || (members_[i].deflated && members_[i].size == 0))
        read(i, progress_[i].summed, block);
    } while (progress_[i].summed < members_[i].size);
  }
}

void ZipWriter::write(std::span<const std::byte> bytes) {
  output_(bytes);
  at_ += bytes.size();
}

void ZipWriter::add(const std::string& name, const std::vector<std::span<const std::byte>>& parts) {
  Written member{.name = name, .at = at_};
  for (const auto part : parts) {
    member.crc = base::add_crc32(member.crc, part);
    member.size += part.size();
  }
  const bool large = needs64(member.size, 0);
  const std::uint64_t size = large ? 0xFFFFFFFF : member.size, extra = large ? kLocal64Bytes : 0,
                      padding = padding_bytes(at_ + kLocalBytes + name.size() + extra, alignment_);
  Record r;
  r.put32(0x04034b50)
      .put16(large ? 45 : 20)
      .put16(kUtf8)
      .put16(0)
      .put16(0)
      .put16(kFirstDay)
      .put(member.crc);
  r.put32(size).put32(size).put16(name.size()).put16(extra + padding).text(name);
  if (large) r.put16(1).put16(16).put(member.size).put(member.size);
  if (padding > 0)
    r.put16(kPaddingField).put16(padding - 4).text(std::string(padding - 4, kPaddingByte));
  write(r.bytes());
  for (const auto part : parts) write(part);
  members_.push_back(std::move(member));
}

void ZipWriter::finish() {
  const std::uint64_t begin = at_;
  for (const Written& m : members_) {
    const bool large = needs64(m.size, m.at);
    const std::uint64_t size = large ? 0xFFFFFFFF : m.size;
    Record r;
    r.put32(0x02014b50)
        .put16(3 << 8 | 45)
        .put16(large ? 45 : 20)
        .put16(kUtf8)
        .put16(0)
        .put16(0)
        .put16(kFirstDay)
        .put(m.crc);
    r.put32(size)
        .put32(size)
        .put16(m.name.size())
        .put16(large ? kCentral64Bytes : 0)
        .put16(0)
        .put16(0)
        .put16(0);
    r.put32(0100600u << 16).put32(large ? 0xFFFFFFFF : m.at).text(m.name);
    if (large) r.put16(1).put16(24).put(m.size).put(m.size).put(m.at);
    write(r.bytes());
  }
  const std::uint64_t bytes = at_ - begin, end = at_;
  const bool large = begin > kLargest32 || bytes > kLargest32 || members_.size() > kMaxMembers;
  Record r;
  if (large) {
    r.put32(0x06064b50).put(kEnd64Bytes - 12).put16(3 << 8 | 45).put16(45).put32(0).put32(0);
    r.put(std::uint64_t{members_.size()}).put(std::uint64_t{members_.size()}).put(bytes).put(begin);
    r.put32(0x07064b50).put32(0).put(end).put32(1);
  }
  const std::uint64_t count = large ? 0xFFFF : members_.size();
  r.put32(0x06054b50).put16(0).put16(0).put16(count).put16(count);
  r.put32(large ? 0xFFFFFFFF : bytes).put32(large ? 0xFFFFFFFF : begin).put16(0);
  write(r.bytes());
}

std::uint64_t ZipWriter::total_bytes(
    const std::vector<std::pair<std::string, std::uint64_t>>& members, std::uint64_t alignment) {
  std::uint64_t data = 0, directory = 0;
  for (const auto& [name, size] : members) {
    directory += kCentralBytes + name.size() + (needs64(size, data) ? kCentral64Bytes : 0);
    data += kLocalBytes + name.size() + (needs64(size, 0) ? kLocal64Bytes : 0);
    data += padding_bytes(data, alignment) + size;
  }
  const bool large = data > kLargest32 || directory > kLargest32 || members.size() > kMaxMembers;
  return data + directory + kEndBytes + (large ? kEnd64Bytes + kLocator64Bytes : 0);
}

}  // namespace io
