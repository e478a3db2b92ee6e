// Formats a run's status as text for a terminal.
#pragma once

#include <string>

#include "tools/report/observers/run_status.h"

namespace tools {

// `age`: seconds since the status was written; `rows`, `columns`: size of the terminal. Ranks that
// do not fit are counted; those that wait longest come first.
//
//   run 20260102-030405-89abcdef: mlp on mnist, training
//   step 120 of 938, epoch 1 of 2 | loss 0.1234, accuracy 0.9612 | 5,120 images/s | 0:12 left
//
//   rank  host  pid   doing
//      0  n1    4711  step 120
//      1  n2    4712  waits 12.3 s in all_reduce sum of 7 f32 (collective 3 of communicator 1)
std::string top_text(const RunStatus& status, double age, int rows, int columns);

}  // namespace tools
