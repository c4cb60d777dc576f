# Counts the project's programs, and writes their names into the workspace, which is a copy.
find . -name '*.py' | sort >files.txt
echo "$(wc -l <files.txt) Python files"
if [ "$$" != 1 ] && [ "$(id -u)" != 0 ] && [ -d /home/hutch ]; then echo "I am a pod, and not root."; fi
