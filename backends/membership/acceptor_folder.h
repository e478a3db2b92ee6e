// Finds the folder in the host's memory in which this user's processes keep the acceptor files of
// elastic jobs.
#pragma once

#include <string>

namespace backends {

struct AcceptorFolder {
  std::string path;    // "": there is none
  std::string notice;  // a line for the user, if other users have taken the first name; else ""
};

// Returns the folder, if a process has made it: all processes of this user find the same one,
// whatever other users create there. Throws AuthenticationError if other users may enter it.
AcceptorFolder find_acceptor_folder();

// Returns the folder, and makes it if there is none: /dev/shm/engine-UID, in $TMPDIR if there is no
// /dev/shm, engine-UID-1 to -15 if other users have taken the name, else one in the user's home.
// Throws as above, and io::CannotCreateError if it cannot be made.
AcceptorFolder make_acceptor_folder();

}  // namespace backends
