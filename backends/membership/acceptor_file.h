// Stores the acceptor of a host in a small file in its memory, which the job's processes there
// share.
#pragma once

#include <cstdint>
#include <string>

#include "backends/membership/paxos.h"
#include "io/base/files/descriptor.h"

namespace backends {

// The file holds two copies of the state, and a write goes to the older one: a process that dies
// during the write leaves the other copy, as if it had died before. Changes are made under a lock
// on the open file, which the kernel releases if its holder dies.
class AcceptorFile final : public Acceptor {
 public:
  // Opens or creates /dev/shm/engine-UID/elastic-<digest of `job`>: in $TMPDIR if there is no
  // /dev/shm, in engine-UID-1 and so on if another user has made the folder. Removes files that
  // crashed jobs have left. Throws AuthenticationError if other users could write it,
  // io::CannotCreateError if it cannot be made or written, PeerError if another process holds it
  // for long.
  explicit AcceptorFile(const std::string& job);
  ~AcceptorFile() override;
  AcceptorFile(const AcceptorFile&) = delete;
  AcceptorFile& operator=(const AcceptorFile&) = delete;

  AcceptorId id() const override { return id_; }
  bool update(const std::function<void(AcceptorState&)>& change) override;
  void use_as(const MemberId& id) override;
  bool is_used_by(const MemberId& id) override;

  // Called at an orderly end: the last process that uses the file removes it.
  void remove_if_last();
  // Removes files that crashed jobs have left, as the constructor does. For the parent of a job's
  // ranks, after they have ended: a rank that was killed has not removed its file, and a stopped
  // one was not the last to use it. Does nothing if the folder cannot be used.
  static void remove_unused() noexcept;
  const std::string& path() const { return path_; }
  // Returns a line for the user about the folder; "": none.
  const std::string& notice() const { return notice_; }
  // Why the last update() failed.
  struct Problem {
    std::string text;    // "": it succeeded
    bool lasts = false;  // false: another process holds the file for a while
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
  base::Descriptor file_;
  bool is_unknown_ = false;  // this process has made the file, and not used it
  AcceptorId id_;
  std::uint64_t sequence_ = 0;  // sequence of the copy that state_ was read from or written to
  AcceptorState state_;
};

}  // namespace backends
