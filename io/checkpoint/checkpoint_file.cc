// The container: writing it piece by piece, and validating every byte of it when reading.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "io/checkpoint/atomic_file.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_format.h"

namespace io {
namespace {

using namespace format;
using Bytes = std::span<const std::byte>;

template <class T>
void put(std::vector<std::byte>& target, T value) {  // little-endian, as the machine
  const auto bytes = std::as_bytes(std::span(&value, 1));
  target.insert(target.end(), bytes.begin(), bytes.end());
}

template <class T>
T get(Bytes bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::uint64_t round_up(std::uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Over the preamble up to the sum itself, and the header.
std::uint32_t header_crc(Bytes preamble, Bytes header) {
  const auto update = [](uLong crc, Bytes part) {
    return crc32_z(crc, reinterpret_cast<const Bytef*>(part.data()), part.size());
  };
  return static_cast<std::uint32_t>(update(update(crc32_z(0, nullptr, 0), preamble.first(kPreambleBytes - 4)), header));
}

// Preamble, header and padding: all that comes before the tensors.
std::vector<std::byte> file_head(const std::vector<std::byte>& header) {
  std::vector<std::byte> head;
  const auto magic = std::as_bytes(std::span(kMagic));
  head.assign(magic.begin(), magic.end());
  put(head, kVersion);
  put(head, static_cast<std::uint64_t>(header.size()));
  put(head, std::uint32_t{0});
  const std::uint32_t crc = header_crc(head, header);
  std::memcpy(head.data() + kPreambleBytes - 4, &crc, sizeof crc);
  head.insert(head.end(), header.begin(), header.end());
  head.resize(round_up(head.size()));
  return head;
}

class StreamDigest {  // XXH3-128 of what is added
 public:
  StreamDigest() : state_(XXH3_createState(), XXH3_freeState) {
    if (state_ == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(state_.get());
  }
  void add(Bytes bytes) { XXH3_128bits_update(state_.get(), bytes.data(), bytes.size()); }
  Digest value() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return {hash.low64, hash.high64};
  }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

std::vector<Placement> place(const Checkpoint& checkpoint) {
  std::vector<Placement> placements;
  std::uint64_t offset = 0;
  for (const NamedArray& array : checkpoint.arrays) {
    placements.push_back({offset, array.data.size(), digest_of(array.data)});
    offset += array.data.size();
  }
  return placements;
}

// The container's header within `bytes`; also checks the padding.
Bytes header_within(Bytes bytes, const std::string& file) {
  if (bytes.size() < kMagic.size() || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    throw DataError(file + ": not a checkpoint of engine" + (bytes.empty() ? ": the file is empty" : ": wrong first bytes"));
  if (bytes.size() < kPreambleBytes + kTrailerBytes)
    throw DataError(file + ": truncated: " + std::to_string(bytes.size()) + " bytes are less than any checkpoint has");
  const auto version = get<std::uint32_t>(bytes, 8);
  if (version != kVersion)
    throw DataError(file + ": format version " + std::to_string(version) + "; this build reads version " +
                    std::to_string(kVersion));
  const auto length = get<std::uint64_t>(bytes, 12);
  if (length > kLargestHeader) throw DataError(file + ": a header of " + std::to_string(length) + " bytes; at most 100000000");
  const std::uint64_t end = round_up(kPreambleBytes + length);
  if (end > bytes.size() - kTrailerBytes)
    throw DataError(file + ": truncated: " + std::to_string(bytes.size()) + " bytes cannot hold a header of " +
                    std::to_string(length));
  const Bytes header = bytes.subspan(kPreambleBytes, length);
  if (header_crc(bytes, header) != get<std::uint32_t>(bytes, kPreambleBytes - 4))
    throw DataError(file + ": the header is damaged (its checksum does not match)");
  const Bytes padding = bytes.subspan(kPreambleBytes + length, end - kPreambleBytes - length);
  if (std::any_of(padding.begin(), padding.end(), [](std::byte b) { return b != std::byte{0}; }))
    throw DataError(file + ": the padding after the header is damaged");
  return header;
}

void check_trailer(Bytes bytes, const std::string& file) {
  const Bytes content = bytes.first(bytes.size() - kTrailerBytes), trailer = bytes.last(kTrailerBytes);
  if (std::memcmp(trailer.data() + 16, kMagic.data(), kMagic.size()) != 0)
    throw DataError(file + ": the end of the file is damaged");
  const Digest stored{get<std::uint64_t>(trailer, 0), get<std::uint64_t>(trailer, 8)};
  if (digest_of(content) != stored) throw DataError(file + ": damaged (the digest of the whole file does not match)");
}

void take_arrays(Bytes tensors, const std::vector<Placement>& placements, const std::string& file, Checkpoint& checkpoint) {
  const std::uint64_t end = placements.empty() ? 0 : placements.back().offset + placements.back().bytes;
  if (end != tensors.size())
    throw DataError(file + (end > tensors.size() ? ": truncated: " : ": too long: ") + std::to_string(tensors.size()) +
                    " bytes of tensors; the header says " + std::to_string(end));
  for (std::size_t i = 0; i < placements.size(); ++i) {
    NamedArray& array = checkpoint.arrays[i];
    const Bytes data = tensors.subspan(placements[i].offset, placements[i].bytes);
    if (digest_of(data) != placements[i].digest)
      throw DataError(file + ": " + to_string(array.section) + " '" + array.name + "' is damaged (its digest does not match)");
    array.data.assign(data.begin(), data.end());
  }
}

class Descriptor {  // an open file
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// Opens a regular file and tells its size. Does not wait for the other side of a pipe.
int open_regular(const std::string& path, std::uint64_t* bytes) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw MissingFileError("cannot open " + path + ": " + std::strerror(errno));
  struct stat status {};
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
    *bytes = static_cast<std::uint64_t>(status.st_size);
    return fd;
  }
  close(fd);
  throw DataError(path + (S_ISDIR(status.st_mode) ? ": is a folder; expected a file" : ": is not a regular file"));
}

void read_exactly(int fd, std::span<std::byte> target, const std::string& path) {
  while (!target.empty()) {
    const ssize_t count = read(fd, target.data(), std::min<std::size_t>(target.size(), 1 << 30));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error("cannot read " + path + ": " + std::strerror(errno));
    if (count == 0) throw DataError(path + ": became shorter while it was read");
    target = target.subspan(static_cast<std::size_t>(count));
  }
}

}  // namespace

void save_checkpoint(const Checkpoint& checkpoint, const std::string& path) {
  const std::vector<Placement> placements = place(checkpoint);
  check_header(checkpoint, placements, path);
  const std::vector<std::byte> header = encode_header(checkpoint, placements);
  if (header.size() > kLargestHeader) throw Error(path + ": cannot save a header of " + std::to_string(header.size()) + " bytes");
  const std::vector<std::byte> head = file_head(header);
  const std::uint64_t tensors = placements.empty() ? 0 : placements.back().offset + placements.back().bytes;

  AtomicFile file(path, head.size() + tensors + kTrailerBytes);
  StreamDigest digest;
  const auto write = [&](Bytes bytes) {
    digest.add(bytes);
    file.write(bytes);
  };
  write(head);
  for (const NamedArray& array : checkpoint.arrays) write(array.data);
  const Digest whole = digest.value();
  std::vector<std::byte> trailer;
  put(trailer, whole.low);
  put(trailer, whole.high);
  trailer.insert(trailer.end(), head.begin(), head.begin() + kMagic.size());
  file.write(trailer);
  file.commit();
}

std::vector<std::byte> read_file(const std::string& path) {
  std::uint64_t bytes = 0;
  const Descriptor file(open_regular(path, &bytes));
  std::vector<std::byte> content;
  try {
    content.resize(bytes);
  } catch (const std::exception&) {  // bad_alloc or length_error
    throw DataError(path + ": " + std::to_string(bytes) + " bytes do not fit into memory");
  }
  read_exactly(file.get(), content, path);
  return content;
}

Checkpoint load_checkpoint(const std::string& path) {
  {
    // A foreign file, however large, is told by its first bytes.
    std::uint64_t bytes = 0;
    const Descriptor file(open_regular(path, &bytes));
    std::vector<std::byte> first(std::min<std::uint64_t>(bytes, kMagic.size()));
    read_exactly(file.get(), first, path);
    if (first.size() < kMagic.size() || std::memcmp(first.data(), kMagic.data(), kMagic.size()) != 0) header_within(first, path);
  }
  return parse_checkpoint(read_file(path), path);
}

Checkpoint parse_checkpoint(const std::vector<std::byte>& bytes, const std::string& name) {
  Checkpoint checkpoint;
  std::vector<Placement> placements;
  const Bytes header = header_within(bytes, name);
  decode_header(header, name, checkpoint, placements);
  const std::uint64_t begin = round_up(kPreambleBytes + header.size());
  take_arrays(Bytes(bytes).subspan(begin, bytes.size() - kTrailerBytes - begin), placements, name, checkpoint);
  check_trailer(bytes, name);
  return checkpoint;
}

}  // namespace io
