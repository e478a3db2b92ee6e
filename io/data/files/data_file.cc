// Implements buffered reading and unpacking.
#include "io/data/files/data_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <unistd.h>

#include "io/base/files/io_error.h"
#include "io/base/files/open_file.h"
#include "io/base/files/retry_on_eintr.h"
#include "io/base/files/system_error_text.h"
#include "io/base/machine/large_pages.h"
#include "io/data/files/whole_gzip.h"

namespace io {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 18;
constexpr std::uint64_t kLargestWhole = std::uint64_t{1} << 30;
constexpr std::uint64_t kMinGrowth = std::uint64_t{1} << 16, kMaxGrowth = std::uint64_t{1} << 22;
constexpr int kGzipOnly = 16;  // added to zlib's window size: a gzip header must follow

bool starts_gzip(std::span<const std::uint8_t> bytes) {
  return bytes.size() >= 2 && bytes[0] == 0x1F && bytes[1] == 0x8B;
}

}  // namespace

DataFile::DataFile(std::string path, Pipes pipes) : path_(std::move(path)) {
  OpenedFile opened = pipes == Pipes::kRead ? open_file_or_pipe(path_) : open_regular_file(path_);
  file_bytes_ = opened.bytes;
  buffer_.resize(pipes == Pipes::kRead ? kBufferBytes
                                       : std::clamp<std::size_t>(file_bytes_, 1, kBufferBytes));
  file_.reset(fdopen(opened.descriptor.fd(), "rb"));
  if (!file_) throw Error(path_ + ": cannot be read: " + base::system_error_text(errno));
  opened.descriptor.release();
  begin();
  if (!starts_gzip(unread_) || unpack_whole()) return;
  if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK)
    throw Error(path_ + ": zlib failed to initialize");
  content_ = Content::kGzipStream;
  stream_open_ = true;
}

DataFile::~DataFile() {
  if (content_ == Content::kGzipStream) inflateEnd(&stream_);
}

bool DataFile::unpack_whole() {
  if (file_bytes_ == 0) return false;  // a pipe, which can be read only once
  const std::uint64_t most = unpacked_limit(file_bytes_);
  if (most > kLargestWhole) return false;
  std::vector<std::uint8_t> file;
  file.reserve(file_bytes_);
  base::use_large_pages(file.data(), file_bytes_);
  file.resize(file_bytes_);
  for (std::size_t at = 0; at < file.size();) {
    const ssize_t got =
        pread(fileno(file_.get()), file.data() + at, file.size() - at, static_cast<off_t>(at));
    if (got <= 0) return false;  // any error occurs again later
    at += static_cast<std::size_t>(got);
  }
  whole_ = unpack_whole_gzip(file, most);
  if (whole_.empty()) return false;
  content_ = Content::kGzipWhole;
  unread_ = whole_;
  return true;
}

bool DataFile::refill() {
  if (content_ == Content::kGzipWhole) {
    unread_ = {};
    return false;
  }
  const std::size_t got = read_once(buffer_);
  unread_ = {buffer_.data(), got};
  return got > 0;
}

// Returns what has been written to a pipe; fread() would wait for a full buffer.
std::size_t DataFile::read_once(std::span<std::uint8_t> out) {
  if (file_bytes_ > 0) {
    const std::size_t got = std::fread(out.data(), 1, out.size(), file_.get());
    if (got == out.size() || !std::ferror(file_.get())) return got;
  } else {
    const auto got =
        base::retry_on_eintr([&] { return ::read(fileno(file_.get()), out.data(), out.size()); });
    if (got >= 0) return static_cast<std::size_t>(got);
  }
  throw Error(path_ + ": reading failed: " + base::system_error_text(errno));
}

// Reads the beginning, which has both bytes that mark a gzip stream.
void DataFile::begin() {
  std::size_t size = 0;
  while (size < 2) {
    const std::size_t got = read_once(std::span(buffer_).subspan(size));
    if (got == 0) break;
    size += got;
    if (file_bytes_ > 0) break;
  }
  unread_ = {buffer_.data(), size};
}

std::size_t DataFile::read_some(std::span<std::uint8_t> out) {
  if (content_ == Content::kGzipStream) return read_packed(out);
  if (unread_.empty() && !refill()) return 0;
  return read(out.first(std::min(out.size(), unread_.size())));
}

std::size_t DataFile::read(std::span<std::uint8_t> out) {
  if (content_ == Content::kGzipStream) return read_packed(out);
  std::size_t done = 0;
  while (done < out.size() && (!unread_.empty() || refill())) {
    const std::size_t count = std::min(out.size() - done, unread_.size());
    std::memcpy(out.data() + done, unread_.data(), count);
    unread_ = unread_.subspan(count);
    done += count;
  }
  return done;
}

std::size_t DataFile::read_packed(std::span<std::uint8_t> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    if (unread_.empty() && !refill()) {
      if (stream_open_)
        throw DataError(path_ + ": the gzip stream is truncated: the file is incomplete");
      break;
    }
    if (!stream_open_) {  // one gzip file may contain several streams in a row
      if (unread_[0] != 0x1F)
        throw DataError(path_ +
                        ": bytes that are not gzip follow after the end of the gzip stream");
      inflateReset(&stream_);
      stream_open_ = true;
    }
    const std::size_t room =
        std::min<std::size_t>(out.size() - done, 1u << 30);  // zlib counts in 32 bits
    stream_.next_in = const_cast<Bytef*>(unread_.data());
    stream_.avail_in = static_cast<uInt>(unread_.size());
    stream_.next_out = out.data() + done;
    stream_.avail_out = static_cast<uInt>(room);
    const int status = inflate(&stream_, Z_NO_FLUSH);
    unread_ = unread_.last(stream_.avail_in);
    done += room - stream_.avail_out;
    if (status == Z_STREAM_END) {
      stream_open_ = false;
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      throw DataError(path_ + ": the gzip stream is damaged (" +
                      (stream_.msg != nullptr ? stream_.msg : zError(status)) + ")");
    }
  }
  return done;
}

void DataFile::check_unpacked(std::uint64_t count) const {
  const std::uint64_t most = unpacked_limit(file_bytes_);
  if (content_ == Content::kPlain || count <= most) return;
  throw DataError(path_ + ": unpacks to more than " + std::to_string(most) +
                  " bytes, the most for a compressed file of " + std::to_string(file_bytes_) +
                  " bytes; unpack it with gunzip if it is meant to");
}

std::vector<std::uint8_t> DataFile::read_up_to(std::uint64_t count) {
  // One byte more than the limit, to detect excess. Reserved memory that is not written costs
  // nothing, and a vector that need not grow is never copied.
  const bool packed = content_ != Content::kPlain;
  const std::uint64_t most = (packed ? unpacked_limit(file_bytes_) : file_bytes_) + 1;
  const bool to_the_end = count > most;
  count = std::min(count, most);
  if (content_ == Content::kGzipWhole && count >= unread_.size()) return take_rest();
  std::vector<std::uint8_t> bytes;
  bytes.reserve(count);
  while (bytes.size() < count) {
    const std::size_t before = bytes.size();
    const std::uint64_t want =
        std::min(count - before, std::clamp<std::uint64_t>(before, kMinGrowth, kMaxGrowth));
    bytes.resize(before + want);
    const std::size_t got = read(std::span(bytes).subspan(before));
    bytes.resize(before + got);
    if (got < want) break;
  }
  if (to_the_end) check_unpacked(bytes.size());
  return bytes;
}

// Moves the memory: a copy would take time and twice the memory.
std::vector<std::uint8_t> DataFile::take_rest() {
  std::vector<std::uint8_t> rest = std::move(whole_);
  rest.erase(rest.begin(), rest.end() - static_cast<std::ptrdiff_t>(unread_.size()));
  unread_ = {};
  return rest;
}

std::uint64_t DataFile::skip_to_end() {
  std::vector<std::uint8_t> scratch(content_ == Content::kPlain ? buffer_.size() : kBufferBytes);
  std::uint64_t total = 0;
  for (std::size_t got = 1; got > 0; total += got) {
    check_unpacked(total);
    got = read(scratch);
  }
  return total;
}

void throw_missing(const std::string& what, const std::string& directory,
                   const std::string& looked_for, const std::string& set) {
  std::error_code unknown;
  const std::string found = std::filesystem::exists(directory, unknown)
                                ? "no " + what + " of " + set + " in " + directory
                                : "no folder " + directory + " with the files of " + set;
  throw MissingFileError(found + ": looked for " + looked_for + "; `tools/scripts/get_data.sh " +
                         set + " --dir " + directory + "` fetches them");
}

}  // namespace io
