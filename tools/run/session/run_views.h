// What other tools see of a run: TensorBoard's event files, and the page for Prometheus.
#pragma once

#include <memory>
#include <string>

#include "backends/group.h"
#include "tools/options/table/run_config.h"
#include "tools/report/observers/prometheus_page.h"
#include "tools/run/session/train_session.h"
#include "tools/run/session/training_run.h"

namespace tools {

// Before anything else is done, on a process with rank 0: throws io::CannotCreateError where the
// folder of --tensorboard-dir cannot be made or written, or, unless a job with the same address may
// be running already (`joins`), where that of --prometheus cannot be had.
void check_views(const RunConfig& config, bool joins);

// Collective: rank 0 serves --prometheus from now on, and keeps it in `page` from one group of an
// elastic job to the next; all fail where it cannot. Elsewhere the page ends. `goes_on`: of a
// training that is under way, which does not end for it.
void open_page(const RunConfig& config, const backends::Group& group,
               backends::Communicator& control, bool goes_on,
               std::unique_ptr<PrometheusPage>& page);

// Rank 0's observers for both, as far as they are asked for.
struct ViewedRun {
  const RunConfig& config;
  const TrainingRun& run;
  const backends::Group& group;
  bool elastic = false;
};
void add_exporters(const ViewedRun& viewed, TrainSession& session, PrometheusPage* page);

}  // namespace tools
