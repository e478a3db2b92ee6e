// Implements the pauses between tries.
#include "backends/transport/repair/connect_schedule.h"

#include <algorithm>

namespace backends {

void ConnectSchedule::start(Time now, const Paces& paces) {
  const std::array all{paces.direct, paces.probe, paces.relay};  // in the order of ConnectWay
  for (std::size_t i = 0; i < tracks_.size(); ++i) {
    // A try that is under way continues.
    tracks_[i] = {.pace = all[i],
                  .next = now + all[i].delay,
                  .next_pause = all[i].pause,
                  .last_pause = all[i].pause,
                  .under_way = tracks_[i].under_way};
  }
}

bool ConnectSchedule::begin(ConnectWay way, Time now) {
  Track& t = track(way);
  if (t.under_way || now < t.next) return false;
  t.under_way = true;
  t.last_pause = t.next_pause;
  t.next = now + t.last_pause;
  t.next_pause = std::min(2 * t.next_pause, std::max(t.pace.max_pause, t.pace.pause));
  return true;
}

bool ConnectSchedule::count_wrong_secret(ConnectWay way) {
  return ++track(way).wrong_secrets >= kMaxWrongSecrets;
}

}  // namespace backends
