// The page that Prometheus scrapes: observers store values for a thread that serves them.
// docs/reporting.md has the names of the metrics.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "engine/train/train_observer.h"
#include "io/metrics/http_responder.h"

namespace tools {

struct PrometheusServer {
  std::string address;          // numeric
  int port = 0;                 // 0: any free port
  std::string version, commit;  // version of the program
  bool patient = false;         // retries if the address is in use
};

struct PrometheusRun {
  std::string run, model, dataset, backend;
  int ranks = 1;
  std::int64_t step = 0, epoch = 0, samples = 0;  // current position
  std::int64_t steps = 0, epochs = 0;             // totals at the end
};

class PrometheusPage {
 public:
  // Serves from now on, with only the program's version before begin(). Throws
  // io::CannotCreateError.
  explicit PrometheusPage(PrometheusServer server);
  ~PrometheusPage();
  PrometheusPage(const PrometheusPage&) = delete;
  PrometheusPage& operator=(const PrometheusPage&) = delete;

  std::string url() const;
  // Starts the run, or its continuation with other ranks, which keeps the other values.
  void begin(const PrometheusRun& run);
  // Returns an observer that updates the page, which outlives it.
  std::unique_ptr<engine::TrainObserver> make_observer();

 private:
  struct Numbers;
  class Observer;
  io::HttpResponder::Content text(std::string_view accept) const;

  const PrometheusServer server_;
  mutable std::mutex mutex_;
  const std::unique_ptr<Numbers> numbers_;        // guarded by it
  std::unique_ptr<io::HttpResponder> responder_;  // last member, because it uses the others
};

// Throws as PrometheusPage's constructor would; binds nothing.
void check_prometheus_address(const PrometheusServer& server);

}  // namespace tools
