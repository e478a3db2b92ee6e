// Handles the parts around the header: preamble, checksum and padding; and the readers' error
// messages.
#include <algorithm>
#include <cstring>

#include "io/base/digests/crc32.h"
#include "io/checkpoint/checkpoint_format.h"

namespace io::format {
namespace {

using Bytes = std::span<const std::byte>;

template <class T>
void put(std::vector<std::byte>& target, T value) {  // little-endian, as on this machine
  const auto bytes = std::as_bytes(std::span(&value, 1));
  target.insert(target.end(), bytes.begin(), bytes.end());
}

template <class T>
T get(Bytes bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::uint64_t round_up(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The checksum of the preamble up to the checksum itself, and of the header.
std::uint32_t header_crc(Bytes preamble, Bytes header) {
  return base::add_crc32(base::add_crc32(0, preamble.first(kPreambleBytes - 4)), header);
}

// Returns the header's length, after all checks of the preamble.
std::uint64_t check_preamble(Bytes preamble, std::uint64_t file_bytes, const std::string& file) {
  if (preamble.size() < kMagic.size() ||
      std::memcmp(preamble.data(), kMagic.data(), kMagic.size()) != 0)
    throw DataError(file + ": not a checkpoint of engine" +
                    (file_bytes == 0 ? ": the file is empty" : ": wrong first bytes"));
  if (file_bytes < kPreambleBytes + kTrailerBytes)
    throw DataError(file + ": truncated: " + std::to_string(file_bytes) +
                    " bytes are less than any checkpoint has");
  const auto version = get<std::uint32_t>(preamble, 8);
  if (version < kFirstVersion || version > kBlockVersion) {
    const std::string text = file + ": format version " + std::to_string(version) +
                             "; this build reads versions " + std::to_string(kFirstVersion) +
                             " to " + std::to_string(kBlockVersion);
    if (version > kBlockVersion) throw LaterFormatError(text);
    throw DataError(text);
  }
  const auto length = get<std::uint64_t>(preamble, 12);
  if (length > kLargestHeader)
    throw DataError(file + ": a header of " + std::to_string(length) + " bytes; at most 100000000");
  if (round_up(kPreambleBytes + length) > file_bytes - kTrailerBytes)
    throw DataError(file + ": truncated: " + std::to_string(file_bytes) +
                    " bytes cannot hold a header of " + std::to_string(length));
  return length;
}

}  // namespace

std::vector<std::byte> encode_head(const Checkpoint& checkpoint,
                                   const std::vector<Placement>& placements) {
  const std::vector<std::byte> header = encode_header(checkpoint, placements);
  if (header.size() > kLargestHeader)
    throw Error("cannot save a header of " + std::to_string(header.size()) + " bytes");
  std::vector<std::byte> head;
  head.reserve(round_up(kPreambleBytes + header.size()));
  const auto magic = std::as_bytes(std::span(kMagic));
  head.assign(magic.begin(), magic.end());
  put(head, kBlockVersion);
  put(head, static_cast<std::uint64_t>(header.size()));
  put(head, std::uint32_t{0});
  const std::uint32_t crc = header_crc(head, header);
  std::memcpy(head.data() + kPreambleBytes - 4, &crc, sizeof crc);
  head.insert(head.end(), header.begin(), header.end());
  head.resize(round_up(head.size()));
  return head;
}

std::vector<std::byte> encode_trailer(const Digest& digest) {
  std::vector<std::byte> trailer;
  trailer.reserve(kTrailerBytes);
  put(trailer, digest.low);
  put(trailer, digest.high);
  const auto magic = std::as_bytes(std::span(kMagic));
  trailer.insert(trailer.end(), magic.begin(), magic.end());
  return trailer;
}

Head read_head(const ByteSource& source) {
  const std::string& file = source.name();
  const std::vector<std::byte> preamble =
      source.bytes(0, std::min<std::uint64_t>(source.size(), kPreambleBytes));
  const std::uint64_t length = check_preamble(preamble, source.size(), file);
  Head head;
  head.tensors_begin = round_up(kPreambleBytes + length);
  const std::vector<std::byte> rest =
      source.bytes(kPreambleBytes, head.tensors_begin - kPreambleBytes);
  const Bytes header = Bytes(rest).first(length), padding = Bytes(rest).subspan(length);
  if (header_crc(preamble, header) != get<std::uint32_t>(preamble, kPreambleBytes - 4))
    throw DataError(file + ": the header is damaged (its checksum does not match)");
  if (std::any_of(padding.begin(), padding.end(), [](std::byte b) { return b != std::byte{0}; }))
    throw DataError(file + ": the padding after the header is damaged");
  head.version = get<std::uint32_t>(preamble, 8);
  StreamDigest digest;
  digest.add(preamble);
  digest.add(rest);
  head.digest = digest.value();
  decode_header(header, head.version, file, head.checkpoint, head.placements);
  return head;
}

void check_length(std::uint64_t claimed, std::uint64_t found, const std::string& file) {
  if (claimed != found)
    throw DataError(file + (claimed > found ? ": truncated: " : ": too long: ") +
                    std::to_string(found) + " bytes of tensors; the header says " +
                    std::to_string(claimed));
}

void check_trailer(std::span<const std::byte> trailer, const Digest& digest,
                   const std::string& file) {
  if (std::memcmp(trailer.data() + 16, kMagic.data(), kMagic.size()) != 0)
    throw DataError(file + ": the end of the file is damaged");
  if (digest != Digest{get<std::uint64_t>(trailer, 0), get<std::uint64_t>(trailer, 8)})
    throw DataError(file + ": damaged (the digest at its end does not match)");
}

void fail_array(Section section, const std::string& name, const std::string& file) {
  throw DataError(file + ": " + to_string(section) + " '" + name +
                  "' is damaged (its digest does not match)");
}

}  // namespace io::format
