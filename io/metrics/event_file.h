// Writes event files for TensorBoard: scalars, texts, histograms, images and hyperparameters of a
// run. The format is implemented natively (docs/adr/0025-event-files-by-hand.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/base/files/own_file.h"
#include "io/metrics/event_values.h"
#include "io/metrics/histogram.h"

namespace io {

class EventFile {
 public:
  using Clock = std::function<double()>;  // seconds since 1970
  using Notice = std::function<void(const std::string&)>;
  // Creates a new file in the folder, which is created if it is missing and must not be a link if
  // the run names it (own_file.h); in name order it follows the files of earlier starts, as
  // TensorBoard requires. If a write fails, the run continues: lost records are reported to
  // `notice`, as in MetricsWriter. Throws CannotCreateError.
  explicit EventFile(const std::string& folder, Clock clock = {}, Notice notice = {},
                     NamedBy named_by = NamedBy::kUser);
  ~EventFile();

  // Marks the data after `step` in earlier files of the folder as discarded: the run continues from
  // there.
  void begin(std::int64_t step);
  // Tags such as "train/loss", and their values.
  using Scalars = std::vector<std::pair<std::string, double>>;
  void scalars(std::int64_t step, const Scalars& values);
  void text(std::int64_t step, const std::string& tag, const std::string& markdown);
  using Histograms = std::vector<std::pair<std::string, Histogram>>;
  void histograms(std::int64_t step, const Histograms& values);

  using Image = EventImage;
  void images(std::int64_t step, const std::vector<Image>& images);

  // Writes the run's row in the HPARAMS tab: its options, and the scalars (tags) of its metrics.
  void hyperparameters(std::int64_t step, const std::string& run,
                       const std::vector<Hyperparameter>& options,
                       const std::vector<std::string>& metrics);
  void end(std::int64_t step, bool success);

  // As LineFile::loss(), for events.
  std::string loss() const;

  const std::string& path() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace io
