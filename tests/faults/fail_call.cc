// A library to preload into a program: it counts the system calls by name, and fails one of them.
//
// Variables of the environment:
//   ENGINE_TEST_FAIL_CALL=write    the function of which a call fails
//   ENGINE_TEST_FAIL_AT=7          its seventh call in a process; 7+: that one and all after it
//   ENGINE_TEST_FAIL_HOW=EIO       with this errno (names below); short: half of the bytes are
//                                  transferred; kill: SIGKILL instead of the call
//   ENGINE_TEST_FAIL_IN=0.2        only in this process (without it: in each). 0 is the process
//   that
//                                  was started, 0.2 its second fork; what was executed by it is
//                                  0.2x
//   ENGINE_TEST_FAIL_COUNTS=DIR    DIR/count.PROCESS.PID gets the counts, in the order of the list
//                                  below, as native 64-bit numbers; DIR/failed.PROCESS.PID says
//                                  where a call failed: a line, and a line "FILE OFFSET" for each
//                                  frame
//   ENGINE_TEST_FAIL_PROCESS       set by this library for what a process executes
// `strings` or --calls of fail_calls.py lists the functions.
//
// What cannot be seen from here: calls that the C library makes itself (the reads and writes behind
// stdio, the files behind getaddrinfo() and glob(), futexes of mutexes, malloc's mmap), and those
// of statically linked code that uses the instruction. stdio is failed at its own functions
// instead.
#include <dirent.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

// clang-format off
#define ENGINE_CALLS(X) \
  X(open) X(openat) X(fopen) X(fopen64) X(fdopen) X(opendir) X(fdopendir) X(read) X(readv) \
  X(pread) X(write) X(writev) X(pwrite) X(fread) X(fwrite) X(fflush) X(fclose) X(fsync) \
  X(fdatasync) X(sync_file_range) X(rename) X(link) X(symlink) X(unlink) X(unlinkat) \
  X(remove) X(rmdir) X(mkdir) X(mkdtemp) X(mkfifo) X(ftruncate) X(fallocate) \
  X(posix_fallocate) X(mmap) X(mprotect) X(madvise) X(memfd_create) X(shm_open) X(close) \
  X(poll) X(recv) X(recvfrom) X(recvmsg) X(send) X(sendto) X(sendmsg) X(connect) X(accept) \
  X(accept4) X(socket) X(socketpair) X(bind) X(listen) X(setsockopt) X(getsockopt) \
  X(getsockname) X(getpeername) X(getaddrinfo) X(getifaddrs) X(epoll_create) \
  X(epoll_create1) X(epoll_ctl) X(epoll_wait) X(eventfd) X(signalfd) X(pipe) X(pipe2) \
  X(dup) X(dup2) X(pthread_create) X(fork) X(execve) X(execvp) X(posix_spawn) X(waitpid) \
  X(waitid) X(kill) X(flock) X(fcntl) X(stat) X(fstat) X(lstat) X(statvfs) X(access) \
  X(readdir) X(readlink) X(realpath) X(getcwd) X(chdir) X(fchmod) X(fchmodat) X(futimens) \
  X(utimensat) X(sendfile) X(nanosleep) X(futex) X(close_range)
// clang-format on

namespace {

enum Call : int {
#define X(name) call_##name,
  ENGINE_CALLS(X)
#undef X
      call_count
};
constexpr const char* kNames[] = {
#define X(name) #name,
    ENGINE_CALLS(X)
#undef X
};

struct {
  const char* name;
  int number;
} constexpr kErrors[] = {
    {"EINTR", EINTR},
    {"EIO", EIO},
    {"ENOSPC", ENOSPC},
    {"EMFILE", EMFILE},
    {"ENOMEM", ENOMEM},
    {"EAGAIN", EAGAIN},
    {"EACCES", EACCES},
    {"EPERM", EPERM},
    {"EINVAL", EINVAL},
    {"ENOLCK", ENOLCK},
    {"ENOSYS", ENOSYS},
    {"EPIPE", EPIPE},
    {"ENOBUFS", ENOBUFS},
    {"E2BIG", E2BIG},
    {"ENOENT", ENOENT},
    {"EOPNOTSUPP", EOPNOTSUPP},
    {"ECONNRESET", ECONNRESET},
    {"ECONNREFUSED", ECONNREFUSED},
    {"ECONNABORTED", ECONNABORTED},
    {"ETIMEDOUT", ETIMEDOUT},
    {"EADDRINUSE", EADDRINUSE},
};
constexpr int kNone = 0, kShort = -1, kKill = -2;

using Counts = std::atomic<std::uint64_t>;
Counts own_counts[call_count];
Counts* counts = own_counts;
int planned_call = -1, planned_fault = kNone;
std::uint64_t planned_at = 0;
bool planned_onwards = false;
bool ready = false;
char process[200] = "0";
std::atomic<int> forks{0};

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Past the functions below, which would count them.
int open_in_folder(const char* kind, int flags) {
  char path[512];
  const int length = std::snprintf(path, sizeof path, "%s/%s.%s.%d",
                                   variable("ENGINE_TEST_FAIL_COUNTS"), kind, process, getpid());
  if (length < 0 || length >= static_cast<int>(sizeof path)) return -1;
  static const auto real = next<int(const char*, int, ...)>("open");
  return real(path, flags | O_CLOEXEC, 0600);
}

// The counts lie in a file that is mapped, so that they outlive SIGKILL and _exit().
void map_counts() {
  counts = own_counts;
  for (Counts& count : own_counts) count = 0;
  if (*variable("ENGINE_TEST_FAIL_COUNTS") == '\0') return;
  static const auto real_mmap = next<void*(void*, std::size_t, int, int, int, off_t)>("mmap");
  static const auto real_close = next<int(int)>("close");
  static const auto real_truncate = next<int(int, off_t)>("ftruncate");
  const int fd = open_in_folder("count", O_RDWR | O_CREAT);
  if (fd < 0) return;
  if (real_truncate(fd, sizeof own_counts) == 0) {
    void* memory = real_mmap(nullptr, sizeof own_counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory != MAP_FAILED) counts = static_cast<Counts*>(memory);
  }
  real_close(fd);
}

bool is_meant() {
  const char* in = variable("ENGINE_TEST_FAIL_IN");
  return *in == '\0' || std::strcmp(in, process) == 0;
}

// A process that forked a worker may have been replaced by another program: its name goes on.
__attribute__((constructor)) void begin() {
  if (const char* name = variable("ENGINE_TEST_FAIL_PROCESS"); *name != '\0')
    std::snprintf(process, sizeof process, "%sx", name);
  const std::string_view call = variable("ENGINE_TEST_FAIL_CALL"),
                         how = variable("ENGINE_TEST_FAIL_HOW");
  for (int c = 0; c < call_count; ++c)
    if (call == kNames[c]) planned_call = c;
  char* rest = nullptr;
  planned_at = std::strtoull(variable("ENGINE_TEST_FAIL_AT"), &rest, 10);
  planned_onwards = *rest == '+';
  if (how == "short") planned_fault = kShort;
  if (how == "kill") planned_fault = kKill;
  for (const auto& [name, number] : kErrors)
    if (how == name) planned_fault = number;
  if (!call.empty() && (planned_call < 0 || planned_fault == kNone || planned_at == 0)) {
    std::fprintf(stderr, "fail_call: bad ENGINE_TEST_FAIL_CALL, _AT or _HOW\n");
    _exit(125);
  }
  void* frame = nullptr;
  static_cast<void>(backtrace(&frame, 1));  // loads what it needs now, not at the call that fails
  map_counts();
  ready = true;
}

void put(int fd, const char* text, int length) {
  static const auto real = next<ssize_t(int, const void*, std::size_t)>("write");
  if (length > 0) static_cast<void>(!real(fd, text, static_cast<std::size_t>(length)));
}

// Who called: for addr2line.
void record(int call, std::uint64_t n) {
  if (*variable("ENGINE_TEST_FAIL_COUNTS") == '\0') return;
  static const auto real_close = next<int(int)>("close");
  const int fd = open_in_folder("failed", O_WRONLY | O_CREAT | O_APPEND);
  if (fd < 0) return;
  char text[600];
  put(fd, text,
      std::snprintf(text, sizeof text, "%s %llu\n", kNames[call],
                    static_cast<unsigned long long>(n)));
  void* frames[40];
  const int depth = n > planned_at ? 0 : backtrace(frames, 40);
  for (int i = 2; i < depth; ++i) {
    Dl_info where{};
    if (dladdr(frames[i], &where) == 0 || where.dli_fname == nullptr) continue;
    const auto offset = static_cast<char*>(frames[i]) - static_cast<char*>(where.dli_fbase);
    put(fd, text,
        std::snprintf(text, sizeof text, "%s 0x%lx\n", where.dli_fname,
                      static_cast<unsigned long>(offset - 1)));
  }
  real_close(fd);
}

// Counts the call. What is to happen to it: kNone, kShort or an errno.
__attribute__((noinline)) int fault_of(int call, bool can_be_short = false, bool possible = true) {
  if (!ready) return kNone;
  const int before = errno;
  const std::uint64_t n = counts[call].fetch_add(1) + 1;
  if (call != planned_call || n < planned_at || (n > planned_at && !planned_onwards) ||
      !is_meant() || !possible || (planned_fault == kShort && !can_be_short))
    return kNone;
  record(call, n);
  errno = before;
  static const auto real_kill = next<int(pid_t, int)>("kill");
  if (planned_fault == kKill) real_kill(getpid(), SIGKILL);
  return planned_fault;
}

// Whether the kernel may transfer less: from and to files, streams, and pipes beyond PIPE_BUF.
bool may_be_short(int fd, std::size_t bytes) {
  static const auto real_fstat = next<int(int, struct stat*)>("fstat");
  static const auto real_option = next<int(int, int, int, void*, socklen_t*)>("getsockopt");
  struct stat status {};
  if (bytes < 2 || real_fstat(fd, &status) != 0) return false;
  if (S_ISREG(status.st_mode)) return true;
  if (S_ISFIFO(status.st_mode)) return bytes > 4096;
  int type = 0;
  socklen_t length = sizeof type;
  return S_ISSOCK(status.st_mode) && real_option(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 &&
         type == SOCK_STREAM;
}

}  // namespace

namespace {

// Not an eventfd or a signalfd, which has no type of file: none of these faults can happen to it.
// And nothing that waits says EAGAIN.
bool can_fail(int fd) {
  static const auto real_fstat = next<int(int, struct stat*)>("fstat");
  static const auto real_fcntl = next<int(int, int, ...)>("fcntl");
  struct stat status {};
  if (real_fstat(fd, &status) == 0 && (status.st_mode & S_IFMT) == 0) return false;
  return planned_fault != EAGAIN || (real_fcntl(fd, F_GETFL) & O_NONBLOCK) != 0;
}

}  // namespace

// FAILING(result, name, (parameters), (arguments), what it returns for `error`): a function with
// this symbol that calls the next library's. By another name in C++, since the C library's headers
// declare some of these as noexcept and some not.
#define FAILING(result, name, parameters, arguments, failed)               \
  extern "C" result failing_##name parameters __asm__(#name);              \
  extern "C" result failing_##name parameters {                            \
    static const auto real = next<result parameters>(#name);               \
    if (const int error = fault_of(call_##name); error > 0) return failed; \
    return real arguments;                                                 \
  }
#define MINUS_ONE (errno = error, -1)
#define NOTHING (errno = error, nullptr)

// The same for those that transfer `bytes` by `fd`.
#define TRANSFERRING(name, parameters, arguments)                                   \
  extern "C" ssize_t failing_##name parameters __asm__(#name);                      \
  extern "C" ssize_t failing_##name parameters {                                    \
    static const auto real = next<ssize_t parameters>(#name);                       \
    const int error = fault_of(call_##name, may_be_short(fd, bytes), can_fail(fd)); \
    if (error > 0) return MINUS_ONE;                                                \
    if (error == kShort) bytes /= 2;                                                \
    return real arguments;                                                          \
  }
// And for those that do it in pieces: of the first piece half.
#define SCATTERING(name, vector_type, parameters, make_short, arguments)            \
  extern "C" ssize_t failing_##name parameters __asm__(#name);                      \
  extern "C" ssize_t failing_##name parameters {                                    \
    static const auto real = next<ssize_t parameters>(#name);                       \
    const std::size_t bytes = first_piece(pieces);                                  \
    const int error = fault_of(call_##name, may_be_short(fd, bytes), can_fail(fd)); \
    if (error > 0) return MINUS_ONE;                                                \
    if (error == kShort) {                                                          \
      make_short;                                                                   \
      return real arguments;                                                        \
    }                                                                               \
    return real arguments;                                                          \
  }

namespace {

std::size_t first_piece(const iovec* pieces) { return pieces == nullptr ? 0 : pieces->iov_len; }
std::size_t first_piece(const msghdr* message) {
  return message->msg_iovlen == 0 ? 0 : message->msg_iov->iov_len;
}

mode_t mode_of(int flags, va_list rest) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
}

}  // namespace

extern "C" int failing_open(const char* path, int flags, ...) __asm__("open");
extern "C" int failing_open(const char* path, int flags, ...) {
  static const auto real = next<int(const char*, int, ...)>("open");
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  if (const int error = fault_of(call_open); error > 0) return MINUS_ONE;
  return real(path, flags, mode);
}

extern "C" int failing_openat(int folder, const char* path, int flags, ...) __asm__("openat");
extern "C" int failing_openat(int folder, const char* path, int flags, ...) {
  static const auto real = next<int(int, const char*, int, ...)>("openat");
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  if (const int error = fault_of(call_openat); error > 0) return MINUS_ONE;
  return real(folder, path, flags, mode);
}

FAILING(FILE*, fopen, (const char* path, const char* mode), (path, mode), NOTHING)
FAILING(FILE*, fopen64, (const char* path, const char* mode), (path, mode), NOTHING)
FAILING(FILE*, fdopen, (int fd, const char* mode), (fd, mode), NOTHING)
FAILING(DIR*, opendir, (const char* path), (path), NOTHING)
FAILING(DIR*, fdopendir, (int fd), (fd), NOTHING)
FAILING(dirent*, readdir, (DIR * folder), (folder), NOTHING)

TRANSFERRING(read, (int fd, void* data, std::size_t bytes), (fd, data, bytes))
TRANSFERRING(pread, (int fd, void* data, std::size_t bytes, off_t at), (fd, data, bytes, at))
TRANSFERRING(write, (int fd, const void* data, std::size_t bytes), (fd, data, bytes))
TRANSFERRING(pwrite, (int fd, const void* data, std::size_t bytes, off_t at), (fd, data, bytes, at))
TRANSFERRING(recv, (int fd, void* data, std::size_t bytes, int flags), (fd, data, bytes, flags))
TRANSFERRING(send, (int fd, const void* data, std::size_t bytes, int flags),
             (fd, data, bytes, flags))
TRANSFERRING(recvfrom,
             (int fd, void* data, std::size_t bytes, int flags, sockaddr* from, socklen_t* length),
             (fd, data, bytes, flags, from, length))
TRANSFERRING(sendto,
             (int fd, const void* data, std::size_t bytes, int flags, const sockaddr* to,
              socklen_t length),
             (fd, data, bytes, flags, to, length))

#define ONE_PIECE                            \
  iovec half{pieces[0].iov_base, bytes / 2}; \
  pieces = &half;                            \
  count = 1
SCATTERING(readv, iovec, (int fd, const iovec* pieces, int count), ONE_PIECE, (fd, pieces, count))
SCATTERING(writev, iovec, (int fd, const iovec* pieces, int count), ONE_PIECE, (fd, pieces, count))
#undef ONE_PIECE
// The first half of the first piece, of `bytes`; `piece` is part of it.
static msghdr half_of(const msghdr& message, std::size_t bytes, iovec& piece) {
  piece = {message.msg_iov[0].iov_base, bytes / 2};
  msghdr half = message;
  half.msg_iov = &piece;
  half.msg_iovlen = 1;
  return half;
}
// A message that takes ancillary data keeps it.
extern "C" ssize_t failing_recvmsg(int fd, msghdr* message, int flags) __asm__("recvmsg");
extern "C" ssize_t failing_recvmsg(int fd, msghdr* message, int flags) {
  static const auto real = next<ssize_t(int, msghdr*, int)>("recvmsg");
  const std::size_t bytes = first_piece(message);
  const int error = fault_of(call_recvmsg, may_be_short(fd, bytes), can_fail(fd));
  if (error > 0) return MINUS_ONE;
  if (error != kShort) return real(fd, message, flags);
  iovec half;
  msghdr less = half_of(*message, bytes, half);
  const ssize_t result = real(fd, &less, flags);
  message->msg_namelen = less.msg_namelen;
  message->msg_controllen = less.msg_controllen;
  message->msg_flags = less.msg_flags;
  return result;
}
extern "C" ssize_t failing_sendmsg(int fd, const msghdr* message, int flags) __asm__("sendmsg");
extern "C" ssize_t failing_sendmsg(int fd, const msghdr* message, int flags) {
  static const auto real = next<ssize_t(int, const msghdr*, int)>("sendmsg");
  const std::size_t bytes = first_piece(message);
  const int error = fault_of(call_sendmsg, may_be_short(fd, bytes), can_fail(fd));
  if (error > 0) return MINUS_ONE;
  if (error != kShort) return real(fd, message, flags);
  iovec half;
  const msghdr less = half_of(*message, bytes, half);
  return real(fd, &less, flags);
}

// stdio keeps errors in the stream, as a failed read or write below it would leave them.
extern "C" std::size_t failing_fread(void* data, std::size_t size, std::size_t n,
                                     FILE* file) __asm__("fread");
extern "C" std::size_t failing_fread(void* data, std::size_t size, std::size_t n, FILE* file) {
  static const auto real = next<std::size_t(void*, std::size_t, std::size_t, FILE*)>("fread");
  const int error = fault_of(call_fread);
  if (error <= 0) return real(data, size, n, file);
  file->_flags |= 0x20;  // _IO_ERR_SEEN
  errno = error;
  return 0;
}
extern "C" std::size_t failing_fwrite(const void* data, std::size_t size, std::size_t n,
                                      FILE* file) __asm__("fwrite");
extern "C" std::size_t failing_fwrite(const void* data, std::size_t size, std::size_t n,
                                      FILE* file) {
  static const auto real =
      next<std::size_t(const void*, std::size_t, std::size_t, FILE*)>("fwrite");
  const int error = fault_of(call_fwrite);
  if (error <= 0) return real(data, size, n, file);
  file->_flags |= 0x20;
  errno = error;
  return 0;
}
extern "C" int failing_fflush(FILE* file) __asm__("fflush");
extern "C" int failing_fflush(FILE* file) {
  static const auto real = next<int(FILE*)>("fflush");
  const int error = fault_of(call_fflush);
  if (error <= 0) return real(file);
  if (file != nullptr) file->_flags |= 0x20;
  return MINUS_ONE;
}
// Both are closed all the same, as Linux does it.
extern "C" int failing_fclose(FILE* file) __asm__("fclose");
extern "C" int failing_fclose(FILE* file) {
  static const auto real = next<int(FILE*)>("fclose");
  const int error = fault_of(call_fclose);
  const int result = real(file);
  return error > 0 ? MINUS_ONE : result;
}
extern "C" int failing_close(int fd) __asm__("close");
extern "C" int failing_close(int fd) {
  static const auto real = next<int(int)>("close");
  const int error = fault_of(call_close);
  const int result = real(fd);
  return error > 0 ? MINUS_ONE : result;
}

FAILING(int, fsync, (int fd), (fd), MINUS_ONE)
FAILING(int, fdatasync, (int fd), (fd), MINUS_ONE)
FAILING(int, sync_file_range, (int fd, off_t at, off_t bytes, unsigned flags),
        (fd, at, bytes, flags), MINUS_ONE)
FAILING(int, rename, (const char* from, const char* to), (from, to), MINUS_ONE)
FAILING(int, link, (const char* from, const char* to), (from, to), MINUS_ONE)
FAILING(int, symlink, (const char* from, const char* to), (from, to), MINUS_ONE)
FAILING(int, unlink, (const char* path), (path), MINUS_ONE)
FAILING(int, unlinkat, (int folder, const char* path, int flags), (folder, path, flags), MINUS_ONE)
FAILING(int, remove, (const char* path), (path), MINUS_ONE)
FAILING(int, rmdir, (const char* path), (path), MINUS_ONE)
FAILING(int, mkdir, (const char* path, mode_t mode), (path, mode), MINUS_ONE)
FAILING(char*, mkdtemp, (char* pattern), (pattern), NOTHING)
FAILING(int, mkfifo, (const char* path, mode_t mode), (path, mode), MINUS_ONE)
FAILING(int, ftruncate, (int fd, off_t bytes), (fd, bytes), MINUS_ONE)
FAILING(int, fallocate, (int fd, int mode, off_t at, off_t bytes), (fd, mode, at, bytes), MINUS_ONE)
FAILING(int, posix_fallocate, (int fd, off_t at, off_t bytes), (fd, at, bytes), error)
FAILING(void*, mmap, (void* at, std::size_t bytes, int access, int flags, int fd, off_t offset),
        (at, bytes, access, flags, fd, offset), (errno = error, MAP_FAILED))
FAILING(int, mprotect, (void* at, std::size_t bytes, int access), (at, bytes, access), MINUS_ONE)
FAILING(int, madvise, (void* at, std::size_t bytes, int advice), (at, bytes, advice), MINUS_ONE)
FAILING(int, memfd_create, (const char* name, unsigned flags), (name, flags), MINUS_ONE)
FAILING(int, shm_open, (const char* name, int flags, mode_t mode), (name, flags, mode), MINUS_ONE)
FAILING(int, poll, (pollfd * polls, nfds_t n, int ms), (polls, n, ms), MINUS_ONE)
FAILING(int, connect, (int fd, const sockaddr* to, socklen_t length), (fd, to, length), MINUS_ONE)
FAILING(int, accept, (int fd, sockaddr* from, socklen_t* length), (fd, from, length), MINUS_ONE)
FAILING(int, accept4, (int fd, sockaddr* from, socklen_t* length, int flags),
        (fd, from, length, flags), MINUS_ONE)
FAILING(int, socket, (int family, int type, int protocol), (family, type, protocol), MINUS_ONE)
FAILING(int, socketpair, (int family, int type, int protocol, int* ends),
        (family, type, protocol, ends), MINUS_ONE)
FAILING(int, bind, (int fd, const sockaddr* at, socklen_t length), (fd, at, length), MINUS_ONE)
FAILING(int, listen, (int fd, int backlog), (fd, backlog), MINUS_ONE)
FAILING(int, setsockopt, (int fd, int level, int name, const void* value, socklen_t length),
        (fd, level, name, value, length), MINUS_ONE)
FAILING(int, getsockopt, (int fd, int level, int name, void* value, socklen_t* length),
        (fd, level, name, value, length), MINUS_ONE)
FAILING(int, getsockname, (int fd, sockaddr* at, socklen_t* length), (fd, at, length), MINUS_ONE)
FAILING(int, getpeername, (int fd, sockaddr* at, socklen_t* length), (fd, at, length), MINUS_ONE)
FAILING(int, getaddrinfo,
        (const char* host, const char* service, const addrinfo* hints, addrinfo** found),
        (host, service, hints, found), (errno = error, EAI_SYSTEM))
FAILING(int, getifaddrs, (struct ifaddrs * *list), (list), MINUS_ONE)
FAILING(int, epoll_create, (int size), (size), MINUS_ONE)
FAILING(int, epoll_create1, (int flags), (flags), MINUS_ONE)
FAILING(int, epoll_ctl, (int set, int what, int fd, epoll_event* event), (set, what, fd, event),
        MINUS_ONE)
FAILING(int, epoll_wait, (int set, epoll_event* events, int most, int ms), (set, events, most, ms),
        MINUS_ONE)
FAILING(int, eventfd, (unsigned value, int flags), (value, flags), MINUS_ONE)
FAILING(int, signalfd, (int fd, const sigset_t* mask, int flags), (fd, mask, flags), MINUS_ONE)
FAILING(int, pipe, (int* ends), (ends), MINUS_ONE)
FAILING(int, pipe2, (int* ends, int flags), (ends, flags), MINUS_ONE)
FAILING(int, dup, (int fd), (fd), MINUS_ONE)
FAILING(int, dup2, (int from, int to), (from, to), MINUS_ONE)
FAILING(int, pthread_create,
        (pthread_t * thread, const pthread_attr_t* attributes, void* (*body)(void*),
         void* argument),
        (thread, attributes, body, argument), error)
FAILING(int, execve, (const char* path, char* const* arguments, char* const* environment),
        (path, arguments, environment), MINUS_ONE)
FAILING(int, execvp, (const char* path, char* const* arguments), (path, arguments), MINUS_ONE)
FAILING(int, posix_spawn,
        (pid_t * pid, const char* path, const posix_spawn_file_actions_t* actions,
         const posix_spawnattr_t* attributes, char* const* arguments, char* const* environment),
        (pid, path, actions, attributes, arguments, environment), error)
FAILING(pid_t, waitpid, (pid_t pid, int* status, int options), (pid, status, options), MINUS_ONE)
FAILING(int, waitid, (idtype_t type, id_t id, siginfo_t* info, int options),
        (type, id, info, options), MINUS_ONE)
FAILING(int, kill, (pid_t pid, int signal), (pid, signal), MINUS_ONE)
FAILING(int, flock, (int fd, int how), (fd, how), MINUS_ONE)
FAILING(int, stat, (const char* path, struct stat* status), (path, status), MINUS_ONE)
FAILING(int, fstat, (int fd, struct stat* status), (fd, status), MINUS_ONE)
FAILING(int, lstat, (const char* path, struct stat* status), (path, status), MINUS_ONE)
FAILING(int, statvfs, (const char* path, struct statvfs* status), (path, status), MINUS_ONE)
FAILING(int, access, (const char* path, int how), (path, how), MINUS_ONE)
FAILING(ssize_t, readlink, (const char* path, char* text, std::size_t bytes), (path, text, bytes),
        MINUS_ONE)
FAILING(char*, realpath, (const char* path, char* text), (path, text), NOTHING)
FAILING(char*, getcwd, (char* text, std::size_t bytes), (text, bytes), NOTHING)
FAILING(int, chdir, (const char* path), (path), MINUS_ONE)
FAILING(int, fchmod, (int fd, mode_t mode), (fd, mode), MINUS_ONE)
FAILING(int, fchmodat, (int folder, const char* path, mode_t mode, int flags),
        (folder, path, mode, flags), MINUS_ONE)
FAILING(int, futimens, (int fd, const timespec* times), (fd, times), MINUS_ONE)
FAILING(int, utimensat, (int folder, const char* path, const timespec* times, int flags),
        (folder, path, times, flags), MINUS_ONE)
FAILING(ssize_t, sendfile, (int out, int in, off_t* at, std::size_t bytes), (out, in, at, bytes),
        MINUS_ONE)
FAILING(int, nanosleep, (const timespec* time, timespec* left), (time, left), MINUS_ONE)

extern "C" int failing_fcntl(int fd, int what, ...) __asm__("fcntl");
extern "C" int failing_fcntl(int fd, int what, ...) {
  static const auto real = next<int(int, int, ...)>("fcntl");
  va_list rest;
  va_start(rest, what);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  if (const int error = fault_of(call_fcntl); error > 0) return MINUS_ONE;
  return real(fd, what, argument);
}

// Only those that the program makes by number.
extern "C" long failing_syscall(long number, ...) __asm__("syscall");
extern "C" long failing_syscall(long number, ...) {
  // Not a guarded initialization: a thread that waits for a guard makes this very call.
  static std::atomic<long (*)(long, ...)> found = nullptr;
  auto* real = found.load();
  if (real == nullptr) found = real = next<long(long, ...)>("syscall");
  long a[6];
  va_list rest;
  va_start(rest, number);
  for (long& value : a) value = va_arg(rest, long);
  va_end(rest);
  // Only a wait may be interrupted: a wake that is lost would be the harness's own fault.
  const bool waits = number == SYS_futex && ((a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT ||
                                             (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET);
  const int call = waits ? call_futex : number == SYS_close_range ? call_close_range : call_count;
  if (call != call_count)
    if (const int error = fault_of(call); error > 0) return MINUS_ONE;
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

extern "C" pid_t failing_fork() __asm__("fork");
extern "C" pid_t failing_fork() {
  static const auto real = next<pid_t()>("fork");
  if (const int error = fault_of(call_fork); error > 0) return MINUS_ONE;
  const int number = forks.fetch_add(1) + 1;
  const pid_t pid = real();
  if (pid != 0) return pid;
  forks = 0;
  const std::size_t length = std::strlen(process);
  std::snprintf(process + length, sizeof process - length, ".%d", number);
  setenv("ENGINE_TEST_FAIL_PROCESS", process, 1);
  map_counts();
  return 0;
}
