// Decides when one end of a link tries to connect to the other, and in which way. Has no clock,
// socket or thread.
#pragma once

#include <array>
#include <cstddef>

#include "io/base/time/deadline.h"

namespace backends {

enum class ConnectWay {
  kDirect,
  kProbe,  // only to learn whether the peer's host refuses it: the peer's process has ended then
  kRelay
};

class ConnectSchedule {
 public:
  using Time = base::Deadline;
  // The first try is due `delay` after the start, the next one `pause` after that. Each pause is
  // twice the one before, up to `max_pause`.
  struct Pace {
    Time::duration delay{}, pause{}, max_pause{};
  };
  struct Paces {
    Pace direct, probe, relay;
  };

  // Begins, in all ways.
  void start(Time now, const Paces& paces);
  // Returns true if a try is due and none is under way in the same way; that begins one.
  [[nodiscard]] bool begin(ConnectWay way, Time now);
  void end(ConnectWay way) { track(way).under_way = false; }
  bool is_under_way(ConnectWay way) const { return track(way).under_way; }
  // Returns the pause between the newest try and the next one: the time that a try has if the next
  // one replaces it.
  Time::duration pause(ConnectWay way) const { return track(way).last_pause; }
  // Returns true if the next try is due but for the one that is under way.
  bool is_past(ConnectWay way, Time now) const { return now >= track(way).next; }
  // Tries no more in this way.
  void stop(ConnectWay way) { track(way).next = Time::max(); }
  // The process that was reached does not know the secret. Returns true if it counts as another
  // job's; one wrong answer may be a byte that was changed in transit.
  [[nodiscard]] bool count_wrong_secret(ConnectWay way);

 private:
  struct Track {
    Pace pace{};
    Time next{};
    Time::duration next_pause{}, last_pause{};
    bool under_way = false;
    int wrong_secrets = 0;
  };
  Track& track(ConnectWay way) { return tracks_[static_cast<std::size_t>(way)]; }
  const Track& track(ConnectWay way) const { return tracks_[static_cast<std::size_t>(way)]; }

  std::array<Track, 3> tracks_{};
};

// The number of wrong answers after which a process is not a member of the job.
inline constexpr int kMaxWrongSecrets = 5;

}  // namespace backends
