// Joins the group of each view of the members, and distinguishes failures of ranks from those of
// the job.
#include "tools/launch/group/elastic_rank.h"

#include <atomic>
#include <chrono>
#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/backend_error.h"
#include "backends/compose/table/backend_table.h"
#include "io/base/files/io_error.h"
#include "io/base/time/deadline.h"
#include "io/base/time/utc_time.h"
#include "io/gpu/cuda_runtime.h"
#include "tools/launch/group/joined_rank.h"
#include "tools/launch/group/membership_text.h"
#include "tools/launch/machine/device_choice.h"
#include "tools/launch/workers/stop_signals.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

// Runs the groups that this process is in, one after the other.
class ElasticRank {
 public:
  ElasticRank(const backends::GroupOptions& options, const RunConfig& config,
              const ElasticBody& body)
      : body_(body),
        flight_dir_(chosen_folder(config)),
        heartbeats_(3 * options.heartbeat_ms),
        membership_({.group = with_rules(options, config),
                     .min_ranks = config.min_ranks,
                     .max_ranks = config.data.max_ranks}) {}

  int run() {
    backends::View view = membership_.first_view();
    for (;;) {
      note(view);
      if (const std::optional<int> code = run_in(view)) {
        if (*code == kExitLeft)
          membership_.withdraw();
        else
          membership_.leave();
        return *code;
      }
      try {
        view = membership_.next_view();
      } catch (const backends::JobEnded&) {
        throw;
      } catch (const backends::PeerError& error) {
        throw backends::PeerError(error.what() + write_last_record());
      }
    }
  }

 private:
  // Ranks that join later save to the same folder. A rank that has trained and is asked to stop
  // ends in order with the remaining ranks, after at most the time that detects a lost rank.
  backends::GroupOptions with_rules(backends::GroupOptions options, const RunConfig& config) {
    options.job.settings.emplace_back("--save-dir", config.keeping.directory);
    const auto patience = std::chrono::milliseconds(4 * options.heartbeat_ms + 2000);
    options.cancelled = [this, patience] {
      if (stop_signal_flag().load() == 0) return is_asked_to_leave() && !has_trained_;
      const std::lock_guard lock(stop_mutex_);
      if (!stop_until_) stop_until_ = base::deadline_in(patience);
      return !has_trained_ || base::has_passed(*stop_until_);
    };
    return options;
  }

  // Returns nothing if another group follows, because of why_.
  std::optional<int> run_in(const backends::View& view) {
    std::unique_ptr<backends::Group> group;
    last_record_ = {};
    try {
      backends::GroupOptions options = membership_.group_options(view);
      options.history = history_;
      group = backends::join_group(options);
      const StopWatchdog watchdog(*group);
      has_trained_ = true;
      // Called after each step, or every few steps.
      const std::optional<int> code = body_(*group, view, [&] {
        in_vain_ = 0;
        membership_.took_step(view);
        return membership_.join_wanted();
      });
      if (!watchdog.has_interrupted()) group->leave([] { return stop_signal_flag().load() != 0; });
      if (!code) why_ = "ranks wait to join";
      return code;
    } catch (const backends::InterruptedError& error) {
      print_notice(error.what());
      return 128 + stop_signal_flag().load();
    } catch (const backends::CancelledError& error) {
      const std::lock_guard lock(stop_mutex_);
      if (stop_until_ && (!has_trained_ || base::has_passed(*stop_until_))) throw;
      why_ = error.what();
    } catch (const backends::PeerError& error) {
      lost(group.get(), error);
    } catch (const io::Error& error) {
      if (!is_soon_broken()) {
        if (group) group->abandon(error.what());
        throw;
      }
      why_ = error.what();
      if (group) group->abandon(why_);
    } catch (const std::exception& error) {
      if (group) group->abandon(text_of(error));
      throw;
    }
    return std::nullopt;
  }

  // A rank that was paused may find that another one continues in its place, and has taken its
  // folder, before it receives messages from the others.
  bool is_soon_broken() const {
    const base::Deadline until = base::deadline_in(heartbeats_);
    while (!membership_.broken() && !base::has_passed(until))
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return membership_.broken().has_value();
  }

  void lost(backends::Group* group, const backends::PeerError& error) {
    why_ = error.what();
    if (group == nullptr) return;
    group->abandon(why_);
    last_record_ = {group->rank(), group->peers(), group->flight_record(why_)};
  }

  // Records the view; throws if the same ranks fail repeatedly without a step, because the cause is
  // then not a rank, and would recur.
  void note(const backends::View& view) {
    constexpr std::size_t kMost = 64;
    constexpr int kMaxInVain = 5;
    const bool same = view.left.empty() && view.joined.empty() && view.generation > 1;
    in_vain_ = same ? in_vain_ + 1 : 0;
    if (in_vain_ > kMaxInVain)
      throw backends::PeerError("the same " + std::to_string(view.world_size) + " ranks have met " +
                                std::to_string(in_vain_) + " times, and failed each time: " + why_);
    if (history_.size() == kMost) history_.erase(history_.begin());
    history_.push_back(base::utc_seconds_text(std::time(nullptr)) + " generation " +
                       std::to_string(view.generation) + ": " + membership_text(view));
  }

  std::string write_last_record() const noexcept {
    if (last_record_.text.empty()) return "";
    return write_flight_record(last_record_.rank, last_record_.peers, last_record_.text,
                               flight_dir_);
  }

  struct Record {
    int rank = 0;
    std::vector<backends::PeerInfo> peers;
    std::string text;
  };

  const ElasticBody& body_;
  const std::string flight_dir_;
  const std::chrono::milliseconds heartbeats_;  // silence after which a rank is lost
  std::atomic<bool> has_trained_ = false;
  std::mutex stop_mutex_;
  std::optional<base::Deadline> stop_until_;  // guarded by it
  backends::Membership membership_;
  std::string why_;
  std::vector<std::string> history_;
  int in_vain_ = 0;
  Record last_record_;  // record of the previous group
};

}  // namespace

int run_elastic_member(const backends::GroupOptions& options, const RunConfig& config,
                       const ElasticBody& body) {
  base::cuda::load_kernels_at_start();
  require_named_devices(config.compute.device);
  try {
    return ElasticRank(options, config, body).run();
  } catch (const backends::CancelledError& error) {
    print_notice(error.what());
    const int signal = stop_signal_flag().load();
    return signal == 0 ? kExitLeft : 128 + signal;
  } catch (const backends::JobEnded& error) {
    print_notice(error.what());  // the others have completed everything
    return kExitOk;
  }
}

}  // namespace tools
