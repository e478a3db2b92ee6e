// Implements sending and receiving records.
#include "backends/secure/record_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "io/base/files/system_error_text.h"

namespace backends {
namespace {

constexpr std::size_t kRecordBytes = RecordStream::kRecordBytes;
constexpr std::size_t kWholeRecordBytes = kRecordBytes + RecordCipher::kOverheadBytes;
// Encrypted before the kernel is called: stays in the second-level cache.
constexpr std::size_t kBatchBytes = 128 << 10, kMaxRecordsPerBatch = 8;
constexpr std::size_t kOutBytes =
    kBatchBytes + kRecordBytes + kMaxRecordsPerBatch * RecordCipher::kOverheadBytes;
static_assert(kBatchBytes + kRecordBytes <= RecordStream::kMaxBatchBytes);
constexpr std::size_t kInBytes = 4 * kWholeRecordBytes;

msghdr message_of(std::span<iovec> parts) {
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  return message;
}

// Goes through parts from the first byte to the last.
class Source {
 public:
  explicit Source(std::span<const iovec> parts) : parts_(parts) { skip_empty(); }
  bool empty() const { return at_ == parts_.size(); }
  const char* data() const { return static_cast<const char*>(parts_[at_].iov_base) + done_; }
  std::size_t bytes() const { return parts_[at_].iov_len - done_; }  // of this part
  void advance(std::size_t bytes) {
    done_ += bytes;
    skip_empty();
  }

 private:
  void skip_empty() {
    while (at_ < parts_.size() && done_ == parts_[at_].iov_len) {
      ++at_;
      done_ = 0;
    }
  }
  std::span<const iovec> parts_;
  std::size_t at_ = 0, done_ = 0;
};

// Copies the next parts that fit whole into a record; returns their bytes.
std::size_t gather(Source& from, char* text) {
  std::size_t bytes = 0;
  while (!from.empty() && bytes + from.bytes() <= kRecordBytes) {
    std::memcpy(text + bytes, from.data(), from.bytes());
    bytes += from.bytes();
    from.advance(from.bytes());
  }
  return bytes;
}

}  // namespace

class RecordStream::Destination {
 public:
  explicit Destination(std::span<const iovec> parts) : source_(parts) {}
  bool full() const { return source_.empty(); }
  std::size_t stored() const { return stored_; }
  std::size_t room() const { return source_.bytes(); }  // in one piece
  char* data() const { return const_cast<char*>(source_.data()); }
  void advance(std::size_t bytes) {
    source_.advance(bytes);
    stored_ += bytes;
  }

 private:
  Source source_;
  std::size_t stored_ = 0;
};

RecordStream::RecordStream(int fd, const LinkKeys& keys) : fd_(fd) {
  if (keys.cipher == LinkCipher::kNone) return;
  sender_.emplace(keys.cipher, keys.send);
  receiver_.emplace(keys.cipher, keys.receive);
  out_.resize(kOutBytes);
  in_.resize(kInBytes);
}

std::string RecordStream::error_text(int error) const {
  if (error != EBADMSG || !receiver_) return "broke: " + base::system_error_text(error);
  return "carries wrong data: record " + std::to_string(receiver_->number()) +
         " was changed, repeated or moved on the way, or one before it is missing";
}

// A batch is reported as sent when the kernel has taken all of it, so that a caller with something
// to send calls again until nothing is left here.
ssize_t RecordStream::send(std::span<iovec> parts) {
  if (!sender_) {
    const msghdr message = message_of(parts);
    return sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  if (out_begin_ == out_end_) encrypt_batch(parts);
  while (out_begin_ < out_end_) {
    const ssize_t n =
        ::send(fd_, out_.data() + out_begin_, out_end_ - out_begin_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) return -1;
    out_begin_ += static_cast<std::size_t>(n);
  }
  return static_cast<ssize_t>(batch_bytes_);
}

void RecordStream::encrypt_batch(std::span<const iovec> parts) {
  out_begin_ = out_end_ = batch_bytes_ = 0;
  Source from(parts);
  for (std::size_t i = 0; i < kMaxRecordsPerBatch && batch_bytes_ < kBatchBytes && !from.empty();
       ++i) {
    char* record = out_.data() + out_end_;
    std::size_t bytes = 0;
    if (from.bytes() >= kRecordBytes) {
      bytes = kRecordBytes;
      sender_->encrypt(from.data(), bytes, record);
      from.advance(bytes);
    } else {
      bytes = gather(from, record + RecordCipher::kHeaderBytes);
      sender_->encrypt(record + RecordCipher::kHeaderBytes, bytes, record);
    }
    batch_bytes_ += bytes;
    out_end_ += bytes + RecordCipher::kOverheadBytes;
  }
}

ssize_t RecordStream::receive(std::span<iovec> parts) {
  if (!receiver_) {
    msghdr message = message_of(parts);
    return recvmsg(fd_, &message, MSG_DONTWAIT);
  }
  Destination to(parts);
  for (;;) {
    Taken taken = Taken::kRecord;
    while (!to.full() && taken == Taken::kRecord) {
      if (const std::size_t bytes = std::min(text_end_ - text_begin_, to.room()); bytes > 0) {
        std::memcpy(to.data(), in_.data() + text_begin_, bytes);
        text_begin_ += bytes;
        to.advance(bytes);
      } else {
        taken = take_record(to);
      }
    }
    if (to.full() || to.stored() > 0) return static_cast<ssize_t>(to.stored());
    if (taken == Taken::kWrong) {
      errno = EBADMSG;
      return -1;
    }
    if (const ssize_t n = refill(); n <= 0) return n;
  }
}

RecordStream::Taken RecordStream::take_record(Destination& to) {
  const std::size_t available = in_end_ - in_begin_;
  if (available < RecordCipher::kHeaderBytes) return Taken::kIncomplete;
  char* record = in_.data() + in_begin_;
  const std::optional<std::size_t> bytes = receiver_->read_header(record);
  if (!bytes || *bytes == 0 || *bytes > kRecordBytes) return Taken::kWrong;
  if (available < *bytes + RecordCipher::kOverheadBytes) return Taken::kIncomplete;
  const bool direct = to.room() >= *bytes;
  char* text = direct ? to.data() : record + RecordCipher::kHeaderBytes;
  if (!receiver_->decrypt(record, *bytes, text)) return Taken::kWrong;
  if (direct) {
    to.advance(*bytes);
  } else {
    text_begin_ = in_begin_ + RecordCipher::kHeaderBytes;
    text_end_ = text_begin_ + *bytes;
  }
  in_begin_ += *bytes + RecordCipher::kOverheadBytes;
  return Taken::kRecord;
}

// REQUIRES: no text is left, and no whole record.
ssize_t RecordStream::refill() {
  if (in_begin_ == in_end_) {
    in_begin_ = in_end_ = 0;
  } else if (in_.size() - in_begin_ < kWholeRecordBytes) {
    std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
    in_end_ -= in_begin_;
    in_begin_ = 0;
  }
  const ssize_t n = recv(fd_, in_.data() + in_end_, in_.size() - in_end_, MSG_DONTWAIT);
  if (n > 0) in_end_ += static_cast<std::size_t>(n);
  return n;
}

}  // namespace backends
