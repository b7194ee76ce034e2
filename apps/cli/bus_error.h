// A mapped file that can no longer be read.
#pragma once

namespace pinion {

// From here on it ends the program with a line that names the file, and with kFailure. It shows as SIGBUS, wherever
// weights are read: the file was shortened, or its disk or network failed. Other bus errors end it as ever.
void name_unreadable_files();

}  // namespace pinion
