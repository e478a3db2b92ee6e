// A connection between two ranks as a stream of bytes, plain or in encrypted records.
//
// Replaces sendmsg() and recvmsg() of a non-blocking socket. A part of up to kRecordBytes that a
// caller sends is one record if the parts around it do not fit beside it, and a receiver that has
// room for a whole record gets it decrypted in place: large parts are not copied.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/secure/record_cipher.h"

namespace backends {

struct LinkKeys {
  LinkCipher cipher = LinkCipher::kNone;
  std::string send, receive;  // RecordCipher::kKeyBytes each, unless the cipher is kNone
};

// One caller at a time. Allocates nothing after construction.
class RecordStream {
 public:
  static constexpr std::size_t kRecordBytes = 64 << 10;  // maximum text of a record
  // The most bytes that the peer may have while send() has not returned them yet.
  static constexpr std::size_t kMaxBatchBytes = 192 << 10;

  // `fd` is connected and owned by the caller.
  RecordStream(int fd, const LinkKeys& keys);

  // Sends from the parts; returns the number of bytes that the kernel has taken, or -1 and errno.
  // REQUIRES: until that number is returned, each call is given the same bytes first.
  ssize_t send(std::span<iovec> parts);
  // Receives into the parts; returns the number of bytes stored, 0 at the end of the connection, or
  // -1 and errno: EBADMSG if a record is not the expected one, as in every later call.
  ssize_t receive(std::span<iovec> parts);
  // Completes "the connection to rank 1 ".
  std::string error_text(int error) const;

 private:
  class Destination;
  enum class Taken { kRecord, kIncomplete, kWrong };

  void encrypt_batch(std::span<const iovec> parts);
  Taken take_record(Destination& to);
  ssize_t refill();

  int fd_;
  std::optional<RecordCipher> sender_, receiver_;  // empty for a plain connection

  std::vector<char> out_;  // encrypted records
  std::size_t out_begin_ = 0, out_end_ = 0;
  std::size_t batch_bytes_ = 0;  // text in out_

  std::vector<char> in_;  // the text of a record, then records
  std::size_t text_begin_ = 0, text_end_ = 0;
  std::size_t in_begin_ = 0, in_end_ = 0;
};

}  // namespace backends
