// Local copies of a data set whose files are on a file system shared by many hosts.
#pragma once

#include <string>

namespace io {

// Where a file or folder goes in `stage`: STAGE/NAME-HASH, with the hash of its absolute path; a
// file lies in a folder of that name. The same on every rank.
std::string staged_path(const std::string& source, const std::string& stage);

// Makes staged_path(source, stage) hold what `source` holds: copies each file that is missing or
// differs in size or time of change, under a temporary name until it is whole, and removes what is
// not in the source. Hidden files are not copied; links are followed (data_folder.h). Only one
// process of a host calls it at a time. Throws MissingFileError (the source cannot be read),
// DataError (a link in it leads nowhere) and CannotCreateError (a copy cannot be written).
void stage_files(const std::string& source, const std::string& stage);

}  // namespace io
