// Reads a data file sequentially, plain or gzipped, with errors that name the file.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <zlib.h>

namespace io {

// The treatment of a name that is a pipe: only a file that is read once can be one.
enum class Pipes : std::uint8_t { kReject, kRead };

// The first two bytes determine if the content is gzipped, not the name. For one thread.
class DataFile {
 public:
  // Throws MissingFileError if it cannot be opened, DataError if it is not a regular file or, with
  // Pipes::kRead, a pipe.
  explicit DataFile(std::string path, Pipes pipes = Pipes::kReject);
  ~DataFile();
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t file_bytes() const { return file_bytes_; }  // on disk; 0 for a pipe
  bool is_packed() const { return content_ != Content::kPlain; }

  // Fills `out` with (unpacked) content; returns the number of bytes. Fewer than requested means
  // the end. Throws DataError for a damaged or truncated gzip stream, Error if reading fails.
  [[nodiscard]] std::size_t read(std::span<std::uint8_t> out);

  // Fills a part of `out` with what one read gives, e.g. with what has been written to a pipe so
  // far; 0 means the end. Throws as above.
  [[nodiscard]] std::size_t read_some(std::span<std::uint8_t> out);

  // Reads up to `count` bytes. Memory grows with the actual content, regardless of the size in a
  // header, and a compressed file may not unpack to more than unpacked_limit() (open_file.h):
  // DataError.
  [[nodiscard]] std::vector<std::uint8_t> read_up_to(std::uint64_t count);

  // Reads to the end; returns the number of bytes read. The same limit as for read_up_to() applies.
  [[nodiscard]] std::uint64_t skip_to_end();

  // Throws the DataError for `count` bytes before any of them is unpacked.
  void check_unpacked(std::uint64_t count) const;

 private:
  bool refill();
  std::size_t read_once(std::span<std::uint8_t> out);
  void begin();
  bool unpack_whole();
  std::vector<std::uint8_t> take_rest();
  std::size_t read_packed(std::span<std::uint8_t> out);

  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::uint64_t file_bytes_ = 0;
  std::unique_ptr<std::FILE, Closer> file_;
  std::vector<std::uint8_t> buffer_;  // raw bytes of the file, of which `unread_` are not yet used
  std::span<const std::uint8_t> unread_;
  enum class Content : std::uint8_t { kPlain, kGzipStream, kGzipWhole };
  Content content_ = Content::kPlain;
  std::vector<std::uint8_t> whole_;  // kGzipWhole: unpacked; `unread_` is its remainder
  bool stream_open_ = false;         // kGzipStream: inside a gzip member
  z_stream stream_{};
};

// Throws MissingFileError with the missing item, the place that was searched, and the command that
// fetches `set`.
[[noreturn]] void throw_missing(const std::string& what, const std::string& directory,
                                const std::string& looked_for, const std::string& set);

}  // namespace io
