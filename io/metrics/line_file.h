// A file that lines are appended to while a training runs, and that may fail without ending it.
#pragma once

#include <cstdint>
#include <string>

#include "io/base/files/descriptor.h"
#include "io/base/files/own_file.h"

namespace io {

class LineFile {
 public:
  // `what` names it in messages, before the path: "metrics". "-": standard output. A file that the
  // run names is a file of its own (own_file.h). Throws CannotCreateError.
  LineFile(const std::string& what, const std::string& path, NamedBy named_by = NamedBy::kUser);
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  // Appends one line or several, each with its end; in one write(), so that a killed process leaves
  // no half of a line. Returns what the user is to be told, once: that lines are lost from now on,
  // or that none are any more, and how many were; "" else. Throws Error where standard output
  // fails.
  std::string write(const std::string& lines);

 private:
  void open_named_by_user();
  int write_all(const std::string& text, std::size_t& done) const;
  bool cut(std::size_t bytes) const;

  const std::string what_, path_;
  base::Descriptor file_;
  bool torn_ = false;      // the file may end within a line
  std::int64_t lost_ = 0;  // lines, since the last one that was written
};

}  // namespace io
