// Implements discarded_run().
#include "tools/run/session/discarded_run.h"

namespace tools {

SessionOptions discarded_run(SessionOptions options) {
  options.keeping.directory.clear();
  options.keeping.resume = {};
  options.best = {};
  options.average_last = 0;
  options.evaluate = options.save = {};
  options.verify_every = 0;
  options.on_nonfinite = engine::OnNonFinite::kContinue;
  options.update.ema = 0;
  return options;
}

}  // namespace tools
