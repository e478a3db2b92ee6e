// The acceptor of a host as a small file in its memory, which the job's processes there share.
#pragma once

#include <cstdint>
#include <string>

#include "backends/membership/paxos.h"
#include "backends/store/tcp_socket.h"

namespace backends {

// Holds two copies of the state and writes the older one: a process that dies while it writes
// leaves the other, as if it had died before. Changes are made under a lock on the open file, which
// the kernel takes back from whoever dies.
class AcceptorFile final : public Register {
 public:
  // Opens or creates /dev/shm/engine-UID/elastic-<digest of `job`>; $TMPDIR where there is no
  // /dev/shm, engine-UID-1 and so on where another user has made the folder. Removes those that
  // crashed jobs have left. Throws AuthenticationError where others than this user could write it,
  // io::CannotCreateError where it cannot be made or written, PeerError where another process holds
  // it for long.
  explicit AcceptorFile(const std::string& job);
  ~AcceptorFile() override;
  AcceptorFile(const AcceptorFile&) = delete;
  AcceptorFile& operator=(const AcceptorFile&) = delete;

  RegisterId id() const override { return id_; }
  bool update(const std::function<void(AcceptorState&)>& change) override;
  void use_as(const MemberId& id) override;
  bool is_used_by(const MemberId& id) override;

  // At an orderly end: the last process that uses the file removes it.
  void remove_if_last();
  const std::string& path() const { return path_; }
  // A line for the user about the folder; "": none.
  const std::string& notice() const { return notice_; }
  // Why the last update() was not made.
  struct Problem {
    std::string text;    // "": it was made
    bool lasts = false;  // it is not only held by another process for a while
  };
  const Problem& problem() const { return problem_; }

 private:
  AcceptorFile() = default;
  static void remove_dead_ones(const std::string& folder, const std::string& own);
  bool is_of_dead_job();
  bool read_id_of_file();
  bool make_content();
  bool open_once();
  bool read();
  bool write();

  std::string path_, notice_;
  Problem problem_;
  Socket file_;
  RegisterId id_;
  std::uint64_t sequence_ = 0;  // of the copy that state_ was read from or written to
  AcceptorState state_;
};

}  // namespace backends
