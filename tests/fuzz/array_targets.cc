// Files of arrays: read as verify, import and train --resume read them.
#include <algorithm>
#include <cstring>
#include <string>

#include <zlib.h>

#include "io/base/digest.h"
#include "io/base/io_error.h"
#include "io/checkpoint/checkpoint_format.h"
#include "io/interchange/array_files.h"
#include "io/interchange/npy_header.h"
#include "tests/fuzz/targets.h"

namespace fuzz {
namespace {

void read_all(Input input) {
  try {
    io::read_arrays(*io::open_arrays(io::memory_bytes(std::as_bytes(input), "file")));
  } catch (const io::Error&) {
  }
}

constexpr std::size_t kPreamble = 24, kHeaderLength = 12, kHeaderSum = 20, kTrailer = 24;

template <class T>
void put(std::vector<std::uint8_t>& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

}  // namespace

void checkpoint(Input input) {
  read_all(input);
  const auto bytes = std::as_bytes(input);
  try {
    io::parse_checkpoint({bytes.begin(), bytes.end()}, "file");
  } catch (const io::Error&) {
  }
}

void safetensors(Input input) { read_all(input); }

void npz(Input input) { read_all(input); }

void npy_header(Input input) {
  try {
    io::parse_npy_header(std::as_bytes(input), "file");
  } catch (const io::Error&) {
  }
}

void repair_checkpoint(std::vector<std::uint8_t>& bytes) {
  if (bytes.size() < kPreamble + kTrailer) return;
  std::memcpy(bytes.data(), io::format::kMagic.data(), io::format::kMagic.size());
  std::memcpy(bytes.data() + bytes.size() - 8, io::format::kMagic.data(), 8);
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data() + kHeaderLength, sizeof header);
  header = std::min<std::uint64_t>(header, bytes.size() - kPreamble - kTrailer);
  put(bytes, kHeaderLength, header);
  uLong sum = crc32(0, bytes.data(), kHeaderSum);
  sum = crc32(sum, bytes.data() + kPreamble, static_cast<uInt>(header));
  put(bytes, kHeaderSum, static_cast<std::uint32_t>(sum));
  // Of all that comes before it; a wrong one is found by the reader's own writer of trailers.
  const auto content = std::as_bytes(std::span(bytes)).first(bytes.size() - kTrailer);
  const std::vector<std::byte> trailer = io::format::encode_trailer(base::digest_of(content));
  std::memcpy(bytes.data() + content.size(), trailer.data(), trailer.size());
}

}  // namespace fuzz
