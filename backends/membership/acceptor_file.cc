// Implements the locks, copies and checksums of the acceptor's file.
#include "backends/membership/acceptor_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <thread>

#include "backends/backend_error.h"
#include "backends/membership/acceptor_folder.h"
#include "backends/secret.h"
#include "backends/store/protocol/wire.h"
#include "io/base/digests/digest.h"
#include "io/base/files/io_error.h"
#include "io/base/files/retry_on_eintr.h"
#include "io/base/files/system_error_text.h"
#include "io/base/time/deadline.h"

namespace backends {
namespace {

constexpr std::string_view kMagic = "EGREG001";
constexpr std::size_t kHeaderBytes = 24;              // magic, acceptor id
constexpr std::size_t kCopyHeaderBytes = 8 + 4 + 16;  // sequence, length, digest of everything else
constexpr std::size_t kMaxStateBytes = 16u << 20;
constexpr off_t kCopyAt[] = {4096, 4096 + (32 << 20)};  // holes use no memory
constexpr auto kLockTime = std::chrono::milliseconds(200);

// Offsets of bytes that are only locked, never written.
constexpr off_t kStateLock = 0;
constexpr off_t kPresenceLock = off_t{1} << 40;
constexpr off_t kMemberLocks = off_t{1} << 41;

off_t lock_of(const MemberId& id) {
  return kMemberLocks + static_cast<off_t>(id.low & ((std::uint64_t{1} << 40) - 1));
}

bool set_lock(int fd, short type, off_t at) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = at;
  lock.l_len = 1;
  return base::retry_on_eintr([&] { return fcntl(fd, F_OFD_SETLK, &lock); }) == 0;
}

bool others_lock(int fd, off_t at) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = at;
  lock.l_len = 1;
  return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

// While a lock is held, no other process changes the state. A stopped process may hold it for long,
// so the wait has a deadline.
class StateLock {
 public:
  explicit StateLock(int fd) : fd_(fd) {
    const base::Deadline deadline = base::deadline_in(kLockTime);
    auto pause = std::chrono::microseconds(50);
    while (!(is_held_ = set_lock(fd_, F_WRLCK, kStateLock)) && !base::has_passed(deadline)) {
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::microseconds(5000));
    }
  }
  ~StateLock() {
    if (is_held_) set_lock(fd_, F_UNLCK, kStateLock);
  }
  StateLock(const StateLock&) = delete;
  StateLock& operator=(const StateLock&) = delete;
  bool is_held() const { return is_held_; }

 private:
  int fd_;
  bool is_held_ = false;
};

std::string digest_of_copy(std::string_view sequence_and_length, std::string_view state) {
  const std::string all = std::string(sequence_and_length).append(state);
  const base::Digest digest = base::digest_of(std::as_bytes(std::span(all)));
  std::string bytes(16, '\0');
  std::memcpy(bytes.data(), &digest.low, 8);
  std::memcpy(bytes.data() + 8, &digest.high, 8);
  return bytes;
}

// Returns the frame without its length and type.
std::string payload_of(FrameWriter& out) { return out.finish().substr(5); }

std::string state_bytes(const AcceptorState& state) {
  FrameWriter out{FrameType{}};
  write_roster(out, state.decided);
  for (const Ballot* ballot : {&state.promised, &state.accepted}) {
    out.i64(static_cast<std::int64_t>(ballot->round));
    write_id(out, ballot->proposer);
  }
  write_roster(out, state.value);
  return payload_of(out);
}

AcceptorState read_state(std::string_view bytes) {
  FrameReader in(bytes);
  AcceptorState state;
  state.decided = read_roster(in);
  for (Ballot* ballot : {&state.promised, &state.accepted}) {
    ballot->round = static_cast<std::uint64_t>(in.i64());
    ballot->proposer = read_id(in);
  }
  state.value = read_roster(in);
  return state;
}

bool read_at(int fd, off_t at, std::size_t count, std::string& bytes) {
  bytes.resize(count);
  const ssize_t n = base::retry_on_eintr([&] { return pread(fd, bytes.data(), count, at); });
  return n == static_cast<ssize_t>(count);
}

// Repeats partial writes: if a limit stops one, the next call returns the reason.
bool write_at(int fd, off_t at, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n =
        base::retry_on_eintr([&] { return pwrite(fd, bytes.data(), bytes.size(), at); });
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
    at += n;
  }
  return true;
}

}  // namespace

AcceptorFile::AcceptorFile(const std::string& job) {
  const base::Digest digest = base::digest_of(std::as_bytes(std::span(job)));
  const AcceptorFolder folder = make_acceptor_folder();
  notice_ = folder.notice;
  path_ = folder.path + "/elastic-" + base::hex_text(digest);
  remove_dead_ones(folder.path, path_);
  const base::Deadline deadline = base::deadline_in(std::chrono::seconds(10));
  while (!open_once()) {
    if (base::has_passed(deadline))
      throw PeerError("the acceptor file " + path_ +
                      " of this job is locked by a process that does not respond; is it stopped?");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// Removes only a file that no other process has seen, e.g. of a process that was rejected before it
// joined: others may count on a state that is still empty.
AcceptorFile::~AcceptorFile() {
  if (is_unknown_) remove_if_last();
}

void AcceptorFile::remove_unused() noexcept {
  try {
    const AcceptorFolder folder = find_acceptor_folder();
    if (!folder.path.empty()) remove_dead_ones(folder.path, "");
  } catch (const std::exception&) {
    // The ranks have reported why the folder cannot be used, and the next job tries again.
  }
}

// A process that opens one of these files meanwhile finds it locked or removed, and retries.
void AcceptorFile::remove_dead_ones(const std::string& folder, const std::string& own) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(folder.c_str()), closedir);
  while (const dirent* entry = entries ? readdir(entries.get()) : nullptr) {
    AcceptorFile other;
    other.path_ = folder + "/" + entry->d_name;
    if (!std::string_view(entry->d_name).starts_with("elastic-") || other.path_ == own) continue;
    other.file_ =
        base::Descriptor(open(other.path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!other.file_ || !set_lock(other.file_.fd(), F_WRLCK, kStateLock)) continue;
    if (other.is_of_dead_job()) unlink(other.path_.c_str());
  }
}

// Returns true if no process uses the file, and no member on another host, or a process that joins
// it, may still need the state. REQUIRES: the state's lock.
bool AcceptorFile::is_of_dead_job() {
  struct stat status {};
  if (fstat(file_.fd(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_nlink == 0 ||
      others_lock(file_.fd(), kPresenceLock))
    return false;
  if (status.st_size == 0) return true;
  return read_id_of_file() && read() &&
         (!state_.decided || std::ranges::all_of(state_.decided->members, [this](const Member& m) {
           return m.acceptor == id_;
         }));
}

bool AcceptorFile::read_id_of_file() {
  std::string header;
  if (!read_at(file_.fd(), 0, kHeaderBytes, header) || !header.starts_with(kMagic)) return false;
  FrameReader in(std::string_view(header).substr(kMagic.size()));
  id_ = read_id(in);
  return true;
}

// Both copies begin with the number 0, which no state has: a reason that keeps this process from
// writing them is found before anybody depends on them.
bool AcceptorFile::make_content() {
  const std::string none(kCopyHeaderBytes, '\0');
  for (const off_t at : kCopyAt)
    if (!write_at(file_.fd(), at, none)) return false;
  return write_at(file_.fd(), 0, std::string(kMagic) + random_bytes(16));
}

// Returns false if the file was removed meanwhile, or is locked.
bool AcceptorFile::open_once() {
  file_ = base::Descriptor(base::retry_on_eintr(
      [&] { return open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600); }));
  if (!file_)
    throw io::CannotCreateError("cannot open " + path_ + ": " + base::system_error_text(errno));
  struct stat status {};
  if (fstat(file_.fd(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid() ||
      (status.st_mode & 077) != 0)
    throw AuthenticationError(path_ + " must be a file of this user that nobody else may read");
  const StateLock lock(file_.fd());
  if (!lock.is_held() || fstat(file_.fd(), &status) != 0 || status.st_nlink == 0) return false;
  const bool is_new = !read_id_of_file();
  if (is_new && (!make_content() || !read_id_of_file()))
    throw io::CannotCreateError("cannot write " + path_ + ": " + base::system_error_text(errno));
  set_lock(file_.fd(), F_RDLCK, kPresenceLock);
  is_unknown_ = is_new;
  return true;
}

// Reads the newest intact copy.
bool AcceptorFile::read() {
  std::uint64_t newest = 0, torn = 0;
  std::string bytes;
  for (const off_t at : kCopyAt) {
    std::string header, copy;
    if (!read_at(file_.fd(), at, kCopyHeaderBytes, header)) continue;
    FrameReader in(header);
    const auto sequence = static_cast<std::uint64_t>(in.i64());
    const std::uint32_t length = in.u32();
    if (sequence <= newest) continue;
    if (sequence == sequence_) {  // this process has read or written it
      newest = sequence;
      continue;
    }
    if (length > kMaxStateBytes ||
        !read_at(file_.fd(), at + static_cast<off_t>(kCopyHeaderBytes), length, copy) ||
        digest_of_copy(header.substr(0, 12), copy) != header.substr(12)) {
      torn = std::max(torn, sequence);
      continue;
    }
    newest = sequence;
    bytes = std::move(copy);
  }
  // A process that dies in the first write leaves no intact copy, but has sent no reply based on
  // it; one that dies in a later write leaves the other copy. Without an intact copy this host
  // would vote in ignorance of its earlier promises.
  if (newest == 0 && (torn > 1 || sequence_ > 0)) return false;
  if (newest == sequence_) return true;
  try {
    state_ = read_state(bytes);
  } catch (const MalformedFrame&) {
    return false;
  }
  sequence_ = newest;
  return true;
}

bool AcceptorFile::write() {
  const std::string state = state_bytes(state_);
  FrameWriter out{FrameType{}};
  out.i64(static_cast<std::int64_t>(sequence_ + 1)).u32(static_cast<std::uint32_t>(state.size()));
  const std::string head = payload_of(out);
  if (!write_at(file_.fd(), kCopyAt[(sequence_ + 1) % 2],
                head + digest_of_copy(head, state) + state))
    return false;
  ++sequence_;
  return true;
}

bool AcceptorFile::update(const std::function<void(AcceptorState&)>& change) {
  is_unknown_ = false;
  const auto fails = [this](bool lasts, const std::string& why) {
    problem_ = {"the acceptor file " + path_ + " of this host " + why, lasts};
    return false;
  };
  const StateLock lock(file_.fd());
  if (!lock.is_held())
    return fails(false, "is locked by a process that does not respond; is it stopped?");
  if (!read()) return fails(true, "is damaged");
  problem_ = {};
  const AcceptorState before = state_;
  change(state_);
  if (state_ == before || write()) return true;
  state_ = before;
  return fails(true, "cannot be written: " + base::system_error_text(errno));
}

void AcceptorFile::use_as(const MemberId& id) {
  is_unknown_ = false;
  set_lock(file_.fd(), F_WRLCK, lock_of(id));
}

bool AcceptorFile::is_used_by(const MemberId& id) { return others_lock(file_.fd(), lock_of(id)); }

void AcceptorFile::remove_if_last() {
  const StateLock lock(file_.fd());
  if (!lock.is_held()) return;
  if (!others_lock(file_.fd(), kPresenceLock)) unlink(path_.c_str());
  set_lock(file_.fd(), F_UNLCK, kPresenceLock);
}

}  // namespace backends
