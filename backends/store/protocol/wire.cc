// Encodes frames as little-endian, byte by byte, so that hosts of any byte order agree.
#include "backends/store/protocol/wire.h"

namespace backends {
namespace {

template <class Number>
void append_number(std::string& out, Number v) {
  char bytes[sizeof v];
  for (std::size_t i = 0; i < sizeof v; ++i) bytes[i] = static_cast<char>(v >> (8 * i));
  out.append(bytes, sizeof bytes);
}

template <class Number>
Number number_of(std::string_view bytes) {
  Number v = 0;
  for (std::size_t i = 0; i < sizeof v; ++i)
    v |= static_cast<Number>(static_cast<std::uint8_t>(bytes[i])) << (8 * i);
  return v;
}

}  // namespace

FrameWriter::FrameWriter(FrameType type) {
  out_.reserve(256);  // enough for most frames
  out_.append(4, '\0');
  out_.push_back(static_cast<char>(type));
}

FrameWriter& FrameWriter::u8(std::uint8_t v) {
  out_.push_back(static_cast<char>(v));
  return *this;
}

FrameWriter& FrameWriter::u32(std::uint32_t v) {
  append_number(out_, v);
  return *this;
}

FrameWriter& FrameWriter::i64(std::int64_t v) {
  append_number(out_, static_cast<std::uint64_t>(v));
  return *this;
}

FrameWriter& FrameWriter::text(std::string_view v) {
  u32(static_cast<std::uint32_t>(v.size()));
  return bytes(v);
}

FrameWriter& FrameWriter::bytes(std::string_view v) {
  out_.append(v);
  return *this;
}

std::string FrameWriter::finish() {
  const auto length = static_cast<std::uint32_t>(out_.size() - 4);
  for (int i = 0; i < 4; ++i)
    out_[static_cast<std::size_t>(i)] = static_cast<char>(length >> (8 * i));
  return std::move(out_);
}

std::string_view FrameReader::take(std::size_t count) {
  if (count > rest_.size()) throw MalformedFrame();
  const std::string_view piece = rest_.substr(0, count);
  rest_.remove_prefix(count);
  return piece;
}

std::uint8_t FrameReader::u8() { return static_cast<std::uint8_t>(take(1)[0]); }

std::uint32_t FrameReader::u32() { return number_of<std::uint32_t>(take(4)); }
std::int64_t FrameReader::i64() {
  return static_cast<std::int64_t>(number_of<std::uint64_t>(take(8)));
}

std::string FrameReader::text() { return bytes(u32()); }
std::string FrameReader::bytes(std::size_t count) { return std::string(take(count)); }

std::optional<Frame> FrameParser::next(std::size_t limit) {
  if (buffered() < 4) return std::nullopt;
  const std::uint32_t length = FrameReader(std::string_view(buffer_).substr(at_, 4)).u32();
  if (length < 1 || length > limit) throw MalformedFrame();
  if (buffered() < 4 + length) return std::nullopt;
  Frame frame{static_cast<FrameType>(buffer_[at_ + 4]), buffer_.substr(at_ + 5, length - 1)};
  at_ += 4 + length;
  if (at_ == buffer_.size() || at_ > 65536) {
    buffer_.erase(0, at_);
    at_ = 0;
  }
  return frame;
}

std::string progress_frame(const std::vector<int>& missing, const std::vector<int>& left) {
  FrameWriter w(FrameType::kProgress);
  for (const std::vector<int>* ranks : {&missing, &left}) {
    w.u32(static_cast<std::uint32_t>(ranks->size()));
    for (const int r : *ranks) w.i32(r);
  }
  return w.finish();
}

std::vector<int> read_ranks(FrameReader& reader) {
  const std::uint32_t count = reader.u32();
  if (count > kFrameBytes / 4) throw MalformedFrame();
  std::vector<int> ranks;
  for (std::uint32_t i = 0; i < count; ++i) ranks.push_back(reader.i32());
  return ranks;
}

}  // namespace backends
