// Compiled for its precompiled headers alone (tests/CMakeLists.txt).
int main() { return 0; }
