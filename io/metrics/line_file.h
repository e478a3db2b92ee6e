// A file to which lines are appended during a training run, and whose failure does not end the run.
#pragma once

#include <cstdint>
#include <string>

#include "io/base/files/descriptor.h"
#include "io/base/files/own_file.h"

namespace io {

class LineFile {
 public:
  // `what` names it in messages, before the path: "metrics". "-": standard output. A file that the
  // run names must satisfy the rules of own_file.h. Throws CannotCreateError.
  LineFile(const std::string& what, const std::string& path, NamedBy named_by = NamedBy::kUser);
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  // Appends one or several lines, each with its end, in one write(), so that a killed process
  // leaves no partial line. Returns a message for the user, once each: that lines are lost from now
  // on, and that writing works again, and how many were lost; otherwise "". Lines that a
  // FolderGuard forbids are lost. Throws Error if standard output fails.
  std::string write(const std::string& lines);
  // If a run's own file has been deleted, makes it again, without the earlier lines. Called while
  // the run holds its folder. Returns a notice; "" if the file is there, or cannot be made.
  std::string restore();
  // Returns what the file lacks of all that was to be written, and the last reason: "metrics
  // m.jsonl: 2 lines are missing: No space left on device"; "" if nothing is missing.
  std::string loss() const;

 private:
  void open_named_by_user();
  int write_all(const std::string& text, std::size_t& done) const;
  bool cut(std::size_t bytes) const;

  const std::string what_, path_;
  const NamedBy named_by_;
  base::Descriptor file_;
  bool torn_ = false;      // the file may end within a line
  std::int64_t lost_ = 0;  // lines since the last one that was written
  int messages_ = 0;       // a disk that is nearly full takes short lines: more would say no more
  std::int64_t lost_in_all_ = 0;
  std::string fault_;  // reason of the last lost line
};

}  // namespace io
