// Collects observed events for a thread that writes them.
#include "tools/report/observers/status_observer.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <stop_token>
#include <thread>

#include "backends/identity/host_identity.h"
#include "io/base/threads/stoppable_sleep.h"
#include "io/base/time/utc_time.h"
#include "io/checkpoint/atomic_file.h"
#include "tools/report/observers/console_observer.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

constexpr auto kEvery = std::chrono::seconds(1);

class Writer final : public StatusObserver {
 public:
  Writer(StatusOptions options, backends::Group& group)
      : options_(std::move(options)), group_(group), status_(options_.begin) {
    const pid_t pid = getpid();
    status_.process = {.host = {},
                       .pid = pid,
                       .space = backends::process_space(),
                       .start_time = static_cast<std::int64_t>(backends::process_start_time(pid))};
    for (const backends::PeerInfo& peer : group_.peers()) {
      if (peer.rank == group_.rank()) status_.process.host = peer.host;
      status_.ranks.push_back({.now = {.rank = peer.rank, .activity = {}, .progress = {}},
                               .host = peer.host,
                               .pid = peer.pid});
    }
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  ~Writer() override {
    thread_.request_stop();
    thread_.join();
    if (!status_.end && options_.elastic) return;  // with other ranks
    if (!status_.end) status_.end = "failed";
    send_status();
  }

  void on_step(const engine::TrainProgress& p) override {
    const std::lock_guard lock(mutex_);
    take(p);
  }
  void on_loss(const engine::TrainProgress&, double loss) override {
    const std::lock_guard lock(mutex_);
    status_.loss = loss;
  }
  void on_report(const engine::StepReport& r) override {
    const std::lock_guard lock(mutex_);
    take(r.progress);
    status_.loss = r.loss;
    status_.accuracy = r.train_accuracy;
    status_.rate = rate_text(options_.unit, r.samples_per_s);
    status_.bytes_sent = r.bytes_sent;
    status_.seconds_left =
        static_cast<double>(status_.progress.steps - r.progress.global_step) * r.step_seconds;
  }
  void on_eval(const engine::EvalReport& r) override {
    const std::lock_guard lock(mutex_);
    status_.evaluation =
        "after step " + std::to_string(r.progress.global_step) + ": " + eval_text(r);
  }
  void on_save(const engine::TrainProgress&, const std::string& path) override {
    const std::lock_guard lock(mutex_);
    status_.newest_checkpoint = std::filesystem::path(path).filename().string();
  }
  void on_end(const engine::TrainResult& r) override {
    if (r.paused) return;
    const std::lock_guard lock(mutex_);
    take(r.progress);
    status_.seconds_left.reset();
    status_.bytes_sent = r.bytes_sent;
    status_.end = r.signal != 0             ? "stopped by signal " + std::to_string(r.signal)
                  : r.stopped_early.empty() ? "completed"
                                            : "stopped early: " + r.stopped_early;
  }
  void on_failure(const std::string& cause) override {
    const std::lock_guard lock(mutex_);
    status_.seconds_left.reset();
    status_.end = "failed";
    status_.cause = cause;
  }

 private:
  void take(const engine::TrainProgress& p) {
    status_.progress.step = p.global_step;
    status_.progress.epoch = p.epoch_of_step() + 1;
  }

  void run(const std::stop_token& stop) {
    do {
      send_status();
    } while (base::sleep_unless_stopped(stop, kEvery));
  }

  void send_status() noexcept {
    try {
      options_.check();
    } catch (const std::exception&) {
      return;  // this check ends the training
    }
    try {
      const std::vector<backends::RankStatus> ranks = group_.statuses();
      std::string text;
      {
        const std::lock_guard lock(mutex_);
        for (const backends::RankStatus& rank : ranks)
          status_.ranks.at(static_cast<std::size_t>(rank.rank)).now = rank;
        status_.written_us = base::unix_us();
        text = run_status_json(status_) + "\n";
      }
      group_.publish_status(text);
      if (!options_.folder.empty()) io::replace_file(run_status_path(options_.folder), text);
    } catch (const std::exception& error) {
      if (!reported_)
        print_notice(std::string(error.what()) + "; engine top has no updates until it can");
      reported_ = true;
    }
  }

  const StatusOptions options_;
  backends::Group& group_;
  std::mutex mutex_;
  RunStatus status_;       // guarded by the mutex
  bool reported_ = false;  // used by the thread, then by the destructor
  std::jthread thread_;    // last member, because it uses the others
};

}  // namespace

std::unique_ptr<StatusObserver> make_status_observer(StatusOptions options,
                                                     backends::Group& group) {
  return std::make_unique<Writer>(std::move(options), group);
}

}  // namespace tools
