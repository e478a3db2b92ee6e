// Helpers that the reports of `engine bench` share: heading, tables, CSV, and the transfer of
// numbers from forked ranks to the parent.
#pragma once

#include <sys/mman.h>

#include <new>
#include <string>
#include <type_traits>
#include <vector>

#include "io/base/formats/json_writer.h"
#include "tools/launch/machine/machine_info.h"
#include "tools/report/output/text_table.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tools {

struct BenchHeading {
  MachineInfo machine;
  std::string build, when;
};
BenchHeading bench_heading();                           // as of now
std::string heading_text(const BenchHeading& heading);  // two lines

enum class ReportFormat { kTable, kMarkdown, kCsv, kJson };
// Adds --format with these names; `format` becomes what was chosen.
CLI::Option* add_format_option(CLI::App& app, ReportFormat& format,
                               std::vector<std::string> names = {"table", "json", "csv", "md"});

// Begins an object with the schema, `command`, and members from "build" to "load".
void begin_report(base::JsonWriter& json, const char* command, const BenchHeading& heading);
std::string csv_text(const std::vector<Cells>& lines);
// A table with texts before and after it; as CSV the lines alone. Columns in
// `left` as table_text() has them. REQUIRES: not kJson.
std::string report_text(ReportFormat format, const std::string& before,
                        const std::vector<Cells>& lines, const std::vector<std::size_t>& left,
                        const std::string& after = "");

// Return the parts of "gloo,checked:shm,gloo" (checked:A,B is one), and of "1,2,4". The UsageError
// names `option`.
std::vector<std::string> split_list(const std::string& list, const char* option);
std::vector<int> rank_counts(const std::string& list);

// A value that forked ranks and their parent share. It has one writer.
template <class T>
class SharedValue {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  SharedValue()
      : memory_(
            mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    new (memory_) T{};
  }
  ~SharedValue() { munmap(memory_, sizeof(T)); }
  SharedValue(const SharedValue&) = delete;
  SharedValue& operator=(const SharedValue&) = delete;

  T& operator*() const { return *static_cast<T*>(memory_); }
  T* operator->() const { return static_cast<T*>(memory_); }

 private:
  void* const memory_;
};

}  // namespace tools
