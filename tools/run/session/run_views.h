// Exports a run to other tools: TensorBoard's event files, and the page for Prometheus.
#pragma once

#include <memory>
#include <string>

#include "backends/group.h"
#include "tools/options/table/run_config.h"
#include "tools/report/observers/prometheus_page.h"
#include "tools/run/session/train_session.h"
#include "tools/run/session/training_run.h"

namespace tools {

// Called before anything else is done, on a process with rank 0: throws io::CannotCreateError if
// the folder of --tensorboard-dir cannot be created or written, or if the address of --prometheus
// is not available, unless a job with the same address may be running already (`joins`).
void check_views(const RunConfig& config, bool joins);

// Collective: rank 0 serves --prometheus from now on, and keeps the server in `page` from one group
// of an elastic job to the next; all ranks fail if it cannot. On other ranks the page ends.
// `goes_on`: the training is already running, and does not end because of a failure here.
void open_page(const RunConfig& config, const backends::Group& group,
               backends::Communicator& control, bool goes_on,
               std::unique_ptr<PrometheusPage>& page);

// Adds rank 0's observers for both, if they are requested.
struct ViewedRun {
  const RunConfig& config;
  const TrainingRun& run;
  const backends::Group& group;
  bool elastic = false;
};
void add_exporters(const ViewedRun& viewed, TrainSession& session, PrometheusPage* page);

}  // namespace tools
