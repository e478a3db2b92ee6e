// The page that Prometheus scrapes: what observers are told, kept for a thread that serves it.
// Names of the metrics: docs/reporting.md.
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
  std::string address;          // in numbers
  int port = 0;                 // 0: any that is free
  std::string version, commit;  // of the program
  bool patient = false;         // an address in use is tried again
};

struct PrometheusRun {
  std::string run, model, dataset, backend;
  int ranks = 1;
  std::int64_t step = 0, epoch = 0, samples = 0;  // where it stands
  std::int64_t steps = 0, epochs = 0;             // at its end
};

class PrometheusPage {
 public:
  // Serves from now on, with nothing but the program's version before begin(). Throws
  // io::CannotCreateError.
  explicit PrometheusPage(PrometheusServer server);
  ~PrometheusPage();
  PrometheusPage(const PrometheusPage&) = delete;
  PrometheusPage& operator=(const PrometheusPage&) = delete;

  std::string url() const;
  // The run, or its going on with other ranks: what else is known of it stays.
  void begin(const PrometheusRun& run);
  // Tells the page, which outlives it.
  std::unique_ptr<engine::TrainObserver> make_observer();

 private:
  struct Numbers;
  class Observer;
  io::HttpResponder::Content text(std::string_view accept) const;

  const PrometheusServer server_;
  mutable std::mutex mutex_;
  const std::unique_ptr<Numbers> numbers_;        // guarded by it
  std::unique_ptr<io::HttpResponder> responder_;  // last: it uses the others
};

// Throws as PrometheusPage's constructor would; binds nothing.
void check_prometheus_address(const PrometheusServer& server);

}  // namespace tools
