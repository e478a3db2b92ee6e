// What is printed of a session: the start line and the lines after it.
#pragma once

#include <string>
#include <vector>

#include "tools/report/observers/session_facts.h"

namespace tools {

// The line with every resolved choice; "engine 0.1.0: mlp (... parameters, f32) on ...".
std::string start_line(const SessionFacts& facts, const std::string& version);
// "resumed run/step-00000400.ckpt at step 400". REQUIRES: the state is loaded.
std::string state_text(const SessionFacts& facts);
// What follows from the number of ranks where an elastic job's batch scales with it; else "".
std::string scale_text(const SessionFacts& facts);
// Warnings about the data, without "warning: ".
std::vector<std::string> data_warnings(const SessionFacts& facts);
// What the start line has no room for: "Columns of ...", "Frozen: ...", "Sampler: ...",
// "Averaging: ...". A part that has nothing to say has no line.
std::string columns_line(const SessionFacts& facts);
std::string capture_line(const SessionFacts& facts);
std::string frozen_line(const SessionFacts& facts);
std::string sampler_line(const SessionFacts& facts);
std::vector<std::string> shard_lines(const SessionFacts& facts);
std::vector<std::string> averaging_lines(const SessionFacts& facts);
// That the run is done, and what would go on with it. REQUIRES: facts.is_complete().
std::string completion_text(const SessionFacts& facts);

}  // namespace tools
