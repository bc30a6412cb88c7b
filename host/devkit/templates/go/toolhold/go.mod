module toolhold

go 1.27
