// The table of the environments of a run's starts, for the page of `engine report`.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "tools/folder/run_record.h"

namespace tools {

inline constexpr std::string_view kRanksRow = "ranks";

// The names of facts, as in run.json if it has them, and their titles.
inline constexpr auto kEnvironmentRows =
    std::to_array<std::pair<std::string_view, const char*>>({{kRanksRow, "ranks"},
                                                             {"backend", "backend"},
                                                             {"cpu", "CPU"},
                                                             {"instructions", "instruction set"},
                                                             {"cores", "cores"},
                                                             {"threads", "threads of each rank"},
                                                             {"memory", "memory"},
                                                             {"device", "device of each rank"},
                                                             {"cuda", "CUDA"},
                                                             {"system", "system"},
                                                             {"kernel", "kernel"},
                                                             {"compiler", "compiler"},
                                                             {"program", "program"}});

// Returns one fact, for all machines of the last start: "2", "1; 4". "" if it is not known.
std::string environment_text(const RunRecord& record, std::string_view name);

// Returns a table with one column per environment: starts and machines with the same one share it.
std::string environment_html(const RunRecord& record);

}  // namespace tools
